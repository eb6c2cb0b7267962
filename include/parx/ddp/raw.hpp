// raw_module: DDP for code that computes its own gradients, over arrays, Eigen, mdspan, anything.
//
//   parx::raw_module<float> model;
//   const auto w = model.add("w", weight);  // a vector, array, span or Eigen matrix of yours
//   parx::ddp ddp{model, world};
//   auto pass = model.begin_backward(batch_size);  // gradients are sums over this rank's samples
//   ... write the gradient of w to model.grad(w) ...
//   pass.ready(w);                        // leaves for the other ranks once its bucket is full
//   pass.end();                           // model.grad(w) is the mean over all ranks' samples
//
// A pass that is destroyed before end(), by an exception for example, is abandoned. After a pass
// under no_sync(), add to model.grad(w) instead of overwriting it. Update the values yourself, or
// use an optimizer of <parx/optim.hpp>, constructed after the wrapper:
//
//   parx::optim::sgd optimizer{ddp.parameters()};
//
// The values stay in your memory; the gradients live in the wrapper's buckets: nothing is copied.
// Write a matrix there through a map, made after the wrapper:
//
//   Eigen::Map<Eigen::MatrixXf>(model.grad(w).data(), weight.rows(), weight.cols()) = delta * x;
//
// Ranks may have different numbers of samples, but all make the same number of passes. A rank that
// has run out of samples calls begin_backward(0) and sets the gradients to zero.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/observer.hpp>
#include <parx/autograd/parameter_handle.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/types/buffer.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

namespace optim {
template <typename T>
class target;  // for parameters(); its callers include <parx/optim.hpp>
}

namespace detail {

/// Fails to compile for a buffer of other elements. Compilers name both types beside the sentence,
/// by the names of these template parameters.
template <typename RawModuleIsOf, typename BufferHolds>
constexpr void explain_other_elements() {
  static_assert(std::is_same_v<RawModuleIsOf, BufferHolds>,
                "this raw_module is of RawModuleIsOf and the buffer holds BufferHolds, two types "
                "that are named beside this message: make a raw_module<BufferHolds>");
}

}  // namespace detail

template <element T>
class raw_module {
  struct entry {
    std::string name;
    std::string reduction_group;
    std::span<T> values;
    std::vector<std::size_t> shape;
    std::vector<T> own_grad;  // until a wrapper binds a bucket
    std::span<T> grad;
    bool has_grad = false;  // grad holds at least a part of this step's gradient
    bool ready = false;
    bool has_target = false;  // an optimizer holds a span of grad
    backward_observer* observer = nullptr;
    std::size_t observer_index = 0;
  };

 public:
  /// A parameter's index, in the order of add().
  using index = std::size_t;

  /// The handle that wrappers see.
  class parameter : public grouped_parameter, public step_aware_parameter {
   public:
    using value_type = T;
    explicit parameter(entry& state) noexcept : state_(&state) {}

    [[nodiscard]] std::span<T> value() const noexcept { return state_->values; }
    [[nodiscard]] const std::vector<std::size_t>& shape() const noexcept { return state_->shape; }
    [[nodiscard]] const std::string& reduction_group() const noexcept {
      return state_->reduction_group;
    }
    void bind_grad(std::span<T> memory) const {
      require(!state_->has_target,
              "an optimizer has the gradient of \"{}\", which moves into the wrapper's memory: "
              "wrap the raw_module first, then make the optimizer from the wrapper's parameters()",
              state_->name);
      state_->grad = memory;
      state_->own_grad = {};
    }
    [[nodiscard]] bool has_grad() const noexcept { return state_->has_grad; }
    void assume_grad() const noexcept { state_->has_grad = true; }
    void zero_grad() const noexcept { state_->has_grad = false; }
    /// The next pass overwrites the mean.
    void end_step() const noexcept { zero_grad(); }
    [[nodiscard]] backward_observer* observer() const noexcept { return state_->observer; }
    void attach(backward_observer* observer, std::size_t number) const noexcept {
      state_->observer = observer;
      state_->observer_index = number;
    }
    void detach_observer() const noexcept { state_->observer = nullptr; }
    /// The wrapper's memory is about to be freed: copies the gradient back.
    void unbind() const {
      state_->has_target = false;  // the optimizer was destroyed before the wrapper
      state_->own_grad.assign(state_->grad.begin(), state_->grad.end());
      state_->grad = state_->own_grad;
    }

   private:
    entry* state_;
  };

  /// A backward pass from begin_backward() to end(). The model must outlive it.
  class [[nodiscard]] pass {
   public:
    pass(const pass&) = delete;
    pass& operator=(const pass&) = delete;
    /// Abandons a pass that has not ended. If sums are under way, that closes the group.
    ~pass() {
      if (model_.running_) model_.abandon();
    }

    /// Says that grad(which) is final: the sum over this rank's samples.
    void ready(index which, call_site site = call_site::current()) { model_.ready(which, site); }

    /// Blocks until the gradients are the mean over all ranks' samples; under no_sync() they stay
    /// sums. Throws usage_error naming the parameters for which ready() was not called, and
    /// parx::error when the sums fail; either abandons the pass.
    void end(call_site site = call_site::current()) { model_.end(site); }

   private:
    friend class raw_module;
    explicit pass(raw_module& model) noexcept : model_(model) {}
    raw_module& model_;
  };

  raw_module() = default;
  raw_module(const raw_module&) = delete;
  raw_module& operator=(const raw_module&) = delete;

  /// Registers memory of yours as a parameter; it must outlive this object. Add parameters in the
  /// order of their use in the forward pass: gradients are expected in the opposite order.
  /// `extents` is the row-major shape written to files; by default the parameter has one axis.
  index add(std::string name, std::span<T> values, const shape& extents = {},
            call_site site = call_site::current()) {
    const shape held = extents.rank() == 0 ? shape{values.size()} : extents;
    require(held.size() == values.size(),
            "raw_module at {}: parameter \"{}\" has {} values, but its shape holds {}", site, name,
            values.size(), held.size());
    for (const entry& other : entries_) {
      require(other.name != name, "raw_module at {}: there is a parameter named \"{}\" already",
              site, name);
    }
    entry& added = entries_.emplace_back();
    added.name = std::move(name);
    added.values = values;
    added.shape.assign(held.begin(), held.end());
    added.own_grad.resize(values.size());
    added.grad = added.own_grad;
    return entries_.size() - 1;
  }
  /// The same for a container, an array or an Eigen matrix. Throws usage_error if its elements are
  /// not contiguous.
  template <typename Buffer>
    requires mutable_buffer<Buffer&>
  index add(std::string name, Buffer& values, const shape& extents = {},
            call_site site = call_site::current()) {
    using held = std::remove_pointer_t<decltype(std::data(values))>;
    detail::explain_other_elements<T, held>();
    require_contiguous(values);
    if constexpr (std::is_same_v<T, held>) {
      const std::span<T> memory(std::data(values), static_cast<std::size_t>(std::size(values)));
      return add(std::move(name), memory, extents, site);
    }
    return 0;
  }

  /// Names the group over which a wrapper sums the gradient of parameter `which`: see
  /// reduction/reduction_group.hpp. Call it before the wrapper is made.
  void reduce_over(index which, std::string group, call_site site = call_site::current()) {
    entry& each = at(which, site);
    require(each.observer == nullptr,
            "raw_module at {}: \"{}\" has been wrapped already: call reduce_over() before", site,
            each.name);
    each.reduction_group = std::move(group);
  }

  /// The gradient of parameter `which`: write it during a pass (overwrite it, it is not cleared)
  /// and read it after the end. Call again after wrapping: it moves into the wrapper's memory.
  [[nodiscard]] std::span<T> grad(index which, call_site site = call_site::current()) {
    return at(which, site).grad;
  }
  [[nodiscard]] std::span<T> value(index which, call_site site = call_site::current()) {
    return at(which, site).values;
  }

  /// Values and gradients for an optimizer of <parx/optim.hpp>, which must be included. Call it
  /// after wrapping, since wrapping moves the gradients: wrapping later throws usage_error. Destroy
  /// the optimizer before the wrapper.
  [[nodiscard]] std::vector<optim::target<T>> parameters() {
    std::vector<optim::target<T>> all;
    for (entry& each : entries_) {
      each.has_target = true;
      all.emplace_back(each.name, each.values, each.grad);
    }
    return all;
  }

  /// Discards the gradients accumulated under no_sync(): the next pass overwrites them.
  void zero_grad() noexcept {
    for (entry& each : entries_) each.has_grad = false;
  }

  /// Starts a backward pass over samples of total weight `count`. Throws usage_error during one.
  pass begin_backward(double count, call_site site = call_site::current()) {
    require(!running_, "raw_module at {}: begin_backward was called before the last pass has ended",
            site);
    require(count >= 0, "raw_module at {}: the weight of the samples is not negative: {}", site,
            count);
    std::vector<std::size_t> reached;
    for (entry& each : entries_) {
      each.ready = false;
      if (each.observer != nullptr) reached.push_back(each.observer_index);
    }
    backward_observer* const wrapper = observer();
    const gradient_of of = wrapper != nullptr ? wrapper->wanted() : gradient_of::mean;
    if (wrapper != nullptr) wrapper->begin_backward({count, reached, of});
    factor_ = of == gradient_of::sum || count == 0 ? 1 : 1 / count;
    running_ = true;
    return pass(*this);
  }

  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    for (entry& each : entries_) {
      parameter handle(each);
      visitor(each.name, handle);
    }
  }

 private:
  [[nodiscard]] entry& at(index which, call_site site) {
    require(which < entries_.size(), "raw_module at {}: there is no parameter {} among {}", site,
            which, entries_.size());
    return entries_[which];
  }
  /// The wrapper's observer, the same for all parameters; null without a wrapper.
  [[nodiscard]] backward_observer* observer() const noexcept {
    return entries_.empty() ? nullptr : entries_.front().observer;
  }

  void ready(index which, call_site site) {
    entry& each = at(which, site);
    require(running_, "raw_module at {}: ready(\"{}\") after the end of the pass", site, each.name);
    require(!each.ready, "raw_module at {}: ready(\"{}\") was called twice in one backward pass",
            site, each.name);
    each.ready = each.has_grad = true;
    if (factor_ != 1) {
      for (T& element : each.grad) element = static_cast<T>(element * static_cast<T>(factor_));
    }
    if (each.observer != nullptr) each.observer->leaf_ready(each.observer_index);
  }

  void end(call_site site) {
    require(running_, "raw_module at {}: the pass has ended already", site);
    try {
      std::string missing;
      for (const entry& each : entries_) {
        if (!each.ready) missing += (missing.empty() ? "" : ", ") + each.name;
      }
      require(missing.empty(),
              "raw_module at {}: ready() was not called for {} in this backward pass", site,
              missing);
      if (observer() != nullptr) observer()->end_backward();
    } catch (...) {
      abandon();
      throw;
    }
    if (observer() == nullptr) zero_grad();
    running_ = false;
  }

  void abandon() noexcept {
    running_ = false;
    zero_grad();
    if (observer() != nullptr) observer()->abandon_backward();
  }

  std::deque<entry> entries_;  // stable addresses for the handles
  bool running_ = false;
  double factor_ = 1;
};

}  // namespace parx
