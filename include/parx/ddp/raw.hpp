// raw_module: a model whose gradients your own code computes, over arrays, Eigen, mdspan, anything.
//
//   parx::raw_module<float> net;
//   const auto w = net.add("w", weight);  // a vector, array, span or Eigen matrix of yours
//   parx::parallel model{net, world, parx::layout::parse("zero=1")};
//   parx::optim::sgd optimizer{model.parameters(), {.lr = 0.1}};
//   auto pass = net.begin_backward(batch_size);  // gradients are sums over this rank's samples
//   ... write the gradient of w to net.grad(w) ...
//   pass.ready(w);                        // leaves for the other ranks once its bucket is full
//   pass.end();                           // the optimizer has the mean over all ranks' samples
//   optimizer.step();                     // weight is the same on all ranks again
//
// A pass that is destroyed before end(), by an exception for example, is abandoned. After a pass
// under no_sync(), add to net.grad(w) instead of overwriting it.
//
// The values stay in your memory. The gradients are in the wrapper's: under a ddp in its buckets,
// where grad(w) is the mean after end(), so that you may update the values yourself. A wrapper that
// shards the optimizer's state (zero=1) or the gradients (zero=2) leaves each rank its part of the
// mean, in parameters(), and completes your arrays when an optimizer has written the parts. Write a
// matrix through a map, made in the pass:
//
//   Eigen::Map<Eigen::MatrixXf>(net.grad(w).data(), weight.rows(), weight.cols()) = delta * x;
//
// Ranks may have different numbers of samples, but all make the same number of passes. A rank that
// has run out of samples calls begin_backward(0) and sets the gradients to zero.
// Threads: one at a time.
#pragma once

#include <concepts>
#include <cstddef>
#include <deque>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/observer.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/nn/model_input.hpp>
#include <parx/nn/module.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/types/buffer.hpp>

namespace parx::inline PARX_ABI {

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

template <std::floating_point T>
class raw_module : public nn::module<raw_module<T>> {
  struct entry {
    parameter<T> held;
    bool is_ready = false;
  };

 public:
  using value_type = T;
  using input_type = no_input;
  /// A parameter's index, in the order of add().
  using index = std::size_t;

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
      require(other.held.name() != name,
              "raw_module at {}: there is a parameter named \"{}\" already", site, name);
    }
    entries_.push_back({parameter<T>(std::move(name), held)});
    entries_.back().held.stay_in(values);
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
    at(which, site).held.reduce_over(std::move(group));
  }

  /// The gradient of parameter `which`, for you to write during a pass (overwrite it, it is not
  /// cleared); under a ddp, the mean after the end. Call it in every pass: a wrapper moves it.
  [[nodiscard]] std::span<T> grad(index which, call_site site = call_site::current()) {
    const parameter<T>& held = at(which, site).held;
    held.assume_grad();
    return held.grad().span();
  }

  /// Starts a backward pass over samples of total weight `count`. Throws usage_error during one.
  pass begin_backward(double count, call_site site = call_site::current()) {
    require(!running_, "raw_module at {}: begin_backward was called before the last pass has ended",
            site);
    require(count >= 0, "raw_module at {}: the weight of the samples is not negative: {}", site,
            count);
    backward_observer* const wrapper = observer();
    if (wrapper == nullptr || !wrapper->adds_passes_up()) this->zero_grad();
    std::vector<std::size_t> reached;
    for (entry& each : entries_) {
      each.is_ready = false;
      if (wrapper != nullptr) reached.push_back(each.held.observer_index());
    }
    const gradient_of of = wrapper != nullptr ? wrapper->wanted() : gradient_of::mean;
    if (wrapper != nullptr) wrapper->begin_backward({count, reached, of});
    factor_ = of == gradient_of::sum || count == 0 ? 1 : 1 / count;
    running_ = true;
    return pass(*this);
  }

  template <typename Visit>
  void members(Visit& visit) {
    for (entry& each : entries_) visit(each.held.name(), each.held);
  }

 private:
  [[nodiscard]] entry& at(index which, call_site site) {
    require(which < entries_.size(), "raw_module at {}: there is no parameter {} among {}", site,
            which, entries_.size());
    return entries_[which];
  }
  /// The wrapper's observer, the same for all parameters; null without a wrapper.
  [[nodiscard]] backward_observer* observer() const {
    return entries_.empty() ? nullptr : entries_.front().held.observer();
  }

  void ready(index which, call_site site) {
    entry& each = at(which, site);
    const std::string& name = each.held.name();
    require(running_, "raw_module at {}: ready(\"{}\") after the end of the pass", site, name);
    require(!each.is_ready, "raw_module at {}: ready(\"{}\") was called twice in one backward pass",
            site, name);
    each.is_ready = true;
    const std::span<T> gradient = grad(which, site);
    if (factor_ != 1) {
      for (T& element : gradient) element = static_cast<T>(element * static_cast<T>(factor_));
    }
    if (observer() != nullptr) observer()->leaf_ready(each.held.observer_index());
  }

  void end(call_site site) {
    require(running_, "raw_module at {}: the pass has ended already", site);
    try {
      std::string missing;
      for (const entry& each : entries_) {
        if (!each.is_ready) missing += (missing.empty() ? "" : ", ") + each.held.name();
      }
      require(missing.empty(),
              "raw_module at {}: ready() was not called for {} in this backward pass", site,
              missing);
      if (observer() != nullptr) observer()->end_backward();
    } catch (...) {
      abandon();
      throw;
    }
    running_ = false;
  }

  void abandon() noexcept {
    running_ = false;
    for (const entry& each : entries_) each.held.zero_grad();
    if (observer() != nullptr) observer()->abandon_backward();
  }

  std::deque<entry> entries_;  // stable addresses for those who walk over them
  bool running_ = false;
  double factor_ = 1;
};

}  // namespace parx
