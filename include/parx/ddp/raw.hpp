// raw_module: DDP for code that computes its own gradients, over arrays, Eigen, mdspan or anything else.
//
//   parx::raw_module<float> model;
//   const auto w = model.add("w", values, {rows, columns});   // std::span over your memory
//   parx::ddp ddp{model, world};
//   model.begin_backward(batch_size);     // gradients are sums over this rank's samples
//   ... write the gradient of w to model.grad(w) ...
//   model.ready(w);                       // leaves for the other ranks as soon as its bucket is full
//   model.end_backward();                 // model.grad(w) is the mean over all ranks' samples
//
// The values stay in your memory; the gradients live in the wrapper's buckets, so nothing is copied.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/autograd/observer.hpp>
#include <parx/core/check.hpp>
#include <parx/types/dtype.hpp>

namespace parx {

template <element T>
class raw_module {
  struct entry {
    std::string name;
    std::span<T> values;
    std::vector<std::size_t> shape;
    std::vector<T> own_grad;  // until a wrapper binds a bucket
    std::span<T> grad;
    bool has_grad = false;
    bool ready = false;
    backward_observer* observer = nullptr;
    std::size_t observer_index = 0;
  };

 public:
  /// A parameter's number, in the order of add().
  using index = std::size_t;

  /// The handle that wrappers see.
  class parameter {
   public:
    using value_type = T;
    explicit parameter(entry& state) noexcept : state_(&state) {}

    [[nodiscard]] std::span<T> value() const noexcept { return state_->values; }
    [[nodiscard]] const std::vector<std::size_t>& shape() const noexcept { return state_->shape; }
    void bind_grad(std::span<T> memory) const {
      state_->grad = memory;
      state_->own_grad = {};
    }
    [[nodiscard]] bool has_grad() const noexcept { return state_->has_grad; }
    void assume_grad() const noexcept { state_->has_grad = true; }
    void attach(backward_observer* observer, std::size_t number) const noexcept {
      state_->observer = observer;
      state_->observer_index = number;
    }
    void detach_observer() const {
      state_->observer = nullptr;
      // The bucket goes; keep what it held.
      state_->own_grad.assign(state_->grad.begin(), state_->grad.end());
      state_->grad = state_->own_grad;
    }

   private:
    entry* state_;
  };

  raw_module() = default;
  raw_module(const raw_module&) = delete;
  raw_module& operator=(const raw_module&) = delete;

  /// Names memory of yours as a parameter; it must outlive this object. Add parameters in the order of
  /// their use in the forward pass: gradients are expected in the opposite order.
  index add(std::string name, std::span<T> values, std::vector<std::size_t> shape = {}) {
    if (shape.empty()) shape = {values.size()};
    std::size_t size = 1;
    for (const std::size_t extent : shape) size *= extent;
    require(size == values.size(), "raw_module: parameter \"{}\" has {} values, but its shape holds {}",
            name, values.size(), size);
    for (const entry& other : entries_) {
      require(other.name != name, "raw_module: there are two parameters named \"{}\"", name);
    }
    entry& added = entries_.emplace_back();
    added.name = std::move(name);
    added.values = values;
    added.shape = std::move(shape);
    added.own_grad.resize(values.size());
    added.grad = added.own_grad;
    return entries_.size() - 1;
  }

  /// Where the gradient of parameter `which` is written (overwrite it, it is not cleared), and read after
  /// end_backward(). Ask again after wrapping: it moves into the wrapper's memory.
  [[nodiscard]] std::span<T> grad(index which) { return at(which).grad; }
  [[nodiscard]] std::span<T> value(index which) { return at(which).values; }

  /// Starts a backward pass over samples of total weight `count`.
  void begin_backward(double count) {
    require(!running_, "raw_module: begin_backward was called twice without end_backward");
    std::vector<std::size_t> reached;
    backward_observer* observer = nullptr;
    for (entry& each : entries_) {
      each.ready = false;
      each.has_grad = false;
      if (each.observer == nullptr) continue;
      observer = each.observer;
      reached.push_back(each.observer_index);
    }
    if (observer != nullptr) {
      factor_ = observer->begin_backward(count, reached);
    } else {
      factor_ = count == 0 ? 1 : 1 / count;
    }
    running_ = true;
  }

  /// Says that grad(which) is final: the sum over this rank's samples.
  void ready(index which) {
    entry& each = at(which);
    require(running_, "raw_module: ready(\"{}\") outside begin_backward and end_backward", each.name);
    require(!each.ready, "raw_module: ready(\"{}\") was called twice in one backward pass", each.name);
    each.ready = each.has_grad = true;
    if (factor_ != 1) {
      for (T& element : each.grad) element = static_cast<T>(element * static_cast<T>(factor_));
    }
    if (each.observer != nullptr) each.observer->leaf_ready(each.observer_index);
  }

  /// Blocks until the gradients are the mean over all ranks' samples. Throws usage_error naming the
  /// parameters for which ready() was not called.
  void end_backward() {
    require(running_, "raw_module: end_backward without begin_backward");
    running_ = false;
    std::string missing;
    backward_observer* observer = nullptr;
    for (entry& each : entries_) {
      if (!each.ready) missing += (missing.empty() ? "" : ", ") + each.name;
      if (each.observer != nullptr) observer = each.observer;
    }
    if (!missing.empty()) {
      if (observer != nullptr) observer->abandon_backward();
      throw_usage("raw_module: ready() was not called for {} in this backward pass", missing);
    }
    if (observer != nullptr) observer->end_backward();
  }

  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    for (entry& each : entries_) {
      parameter handle(each);
      visitor(each.name, handle);
    }
  }

 private:
  [[nodiscard]] entry& at(index which) {
    require(which < entries_.size(), "raw_module: there is no parameter {} among {}", which, entries_.size());
    return entries_[which];
  }

  std::deque<entry> entries_;  // stable addresses for the handles
  bool running_ = false;
  double factor_ = 1;
};

}  // namespace parx
