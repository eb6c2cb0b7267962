// function.hpp: how an operation is made differentiable.
//
//   template <typename T>
//   variable<T> square(const variable<T>& x) {
//     return differentiable(
//         map([](T v) { return v * v; }, x.value()),
//         [value = x.value()](const tensor<T>& upstream, grad_sink<T> dx) {
//           dx.map([](T v, T u) { return 2 * v * u; }, value, upstream);
//         },
//         x);
//   }
//
// The backward function gets the gradient of the result (contiguous) and one grad_sink per input,
// in order. It captures what it needs (tensors are handles: no copy); inputs that want no gradient
// have sinks that are not needed(). It is destroyed once backward has used it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <typeinfo>
#include <utility>
#include <vector>

#include <parx/autograd/anomaly.hpp>
#include <parx/autograd/recompute.hpp>
#include <parx/autograd/variable.hpp>
#include <parx/tensor/pointwise.hpp>
#include <parx/tensor/reduction.hpp>

namespace parx::inline PARX_ABI {

/// Where a backward function puts the gradient of one input. Any number of contributions may be
/// made; they add up.
template <typename T>
class grad_sink {
 public:
  explicit grad_sink(detail::node_base* input) noexcept
      : input_(static_cast<detail::node<T>*>(input)) {}

  /// Nothing has to be computed for this input when false; no other member may be called then.
  [[nodiscard]] bool needed() const noexcept { return input_ != nullptr; }
  [[nodiscard]] const parx::shape& shape() const noexcept { return input_->shape(); }

  /// The memory itself, for kernels that can both overwrite (add is false) and add: gemm with beta.
  [[nodiscard]] detail::gradient_memory<T> memory() const { return input_->memory(); }
  /// The memory, zero where nothing was contributed yet: for scattered contributions.
  [[nodiscard]] tensor<T> zeroed() const {
    const auto target = memory();
    if (!target.add) target.values.fill(T(0));
    return target.values;
  }
  /// The same for contributions to `rows` of axis 0 only; the others are not touched.
  [[nodiscard]] tensor<T> rows(std::span<const std::size_t> rows) const {
    return input_->row_memory(rows);
  }
  /// Contributes f(operand...) element by element. The operands broadcast to the input's shape, or
  /// to one to which the input itself was broadcast; then the result is summed over the repeated
  /// axes.
  template <typename Function, typename... Operands>
  void map(Function&& f, const tensor<Operands>&... operand) const {
    parx::shape result = shape();
    ((result = broadcast_shapes(result, operand.shape())), ...);
    if (result != shape()) {
      const tensor<T> contribution = tensor<T>::empty(result);
      map_into(contribution, f, operand...);
      add_broadcast(contribution);
      return;
    }
    const auto target = memory();
    if (target.add) {
      map_into(
          target.values, [&](T old, Operands... v) { return static_cast<T>(old + f(v...)); },
          target.values, operand...);
    } else {
      map_into(target.values, f, operand...);
    }
  }
  /// Contributes a tensor of the input's shape. It may be kept: do not write it afterwards.
  void add(const tensor<T>& contribution) const { input_->accept(contribution.contiguous()); }
  /// Contributes a tensor of a shape to which the input was broadcast: summed over the repeated
  /// axes.
  void add_broadcast(const tensor<T>& contribution) const {
    if (contribution.shape() == shape()) {
      add(contribution);
    } else {
      const auto target = memory();
      sum_into(contribution, target.values, target.add ? accumulate::add : accumulate::overwrite);
    }
  }
  /// No contribution follows. Optional, for an operation that has more to compute for other inputs:
  /// where this one is a parameter, its gradient leaves for other ranks meanwhile.
  void done() const { detail::backward_pass::contributed_ahead(*input_); }

 private:
  detail::node<T>* input_;
};

/// Whether an operation on these inputs has to be recorded: recording is on and one wants a
/// gradient.
template <typename... Inputs>
[[nodiscard]] bool records(const variable<Inputs>&... inputs) {
  if (detail::recording()) return (inputs.requires_grad() || ...);
  if (detail::used_nodes* const report = detail::uses_reported_to()) {
    ((inputs.requires_grad() ? report->note(inputs.node().get()) : void()), ...);
  }
  return false;
}

namespace detail {

template <typename Input>
[[nodiscard]] counted<node_base> edge_to(const variable<Input>& input) noexcept {
  return counted<node_base>(input.requires_grad() ? input.node().get() : nullptr);
}

template <typename T, typename Backward, typename... Inputs>
class function_node final : public node<T> {
 public:
  function_node(const parx::shape& s, Backward backward, const variable<Inputs>&... inputs)
      : node<T>(false, s), edges_{edge_to(inputs)...}, backward_(std::move(backward)) {}

  [[nodiscard]] std::size_t inputs() const noexcept override {
    return this->released ? 0 : sizeof...(Inputs);
  }
  [[nodiscard]] node_base* input(std::size_t i) const noexcept override { return edges_[i].get(); }
  void run() override {
    if (this->gradient.defined()) run(std::index_sequence_for<Inputs...>{});
  }
  void release() noexcept override {
    this->released = true;
    backward_.reset();
    edges_ = {};
  }

 private:
  template <std::size_t... I>
  void run(std::index_sequence<I...> /*inputs*/) {
    (*backward_)(std::as_const(this->gradient), grad_sink<Inputs>(edges_[I].get())...);
  }

  std::array<counted<node_base>, sizeof...(Inputs)> edges_;
  std::optional<Backward> backward_;
};

/// A function of any number of inputs of one type.
template <typename T, typename Backward>
class list_function_node final : public node<T> {
 public:
  list_function_node(const parx::shape& s, Backward backward, std::span<const variable<T>> inputs)
      : node<T>(false, s), backward_(std::move(backward)) {
    edges_.reserve(inputs.size());
    for (const variable<T>& input : inputs) edges_.push_back(edge_to(input));
  }

  [[nodiscard]] std::size_t inputs() const noexcept override { return edges_.size(); }
  [[nodiscard]] node_base* input(std::size_t i) const noexcept override { return edges_[i].get(); }
  void run() override {
    if (!this->gradient.defined()) return;
    for (std::size_t i = 0; i < edges_.size(); ++i) {
      if (edges_[i]) (*backward_)(std::as_const(this->gradient), i, grad_sink<T>(edges_[i].get()));
    }
  }
  void release() noexcept override {
    this->released = true;
    backward_.reset();
    edges_.clear();
  }

 private:
  std::vector<counted<node_base>, pool_allocator<counted<node_base>>> edges_;
  std::optional<Backward> backward_;
};

}  // namespace detail

/// A variable with `value` whose backward is backward(upstream, grad_sink<Inputs>...): see above.
template <typename T, typename Backward, typename... Inputs>
[[nodiscard]] variable<T> differentiable(tensor<T> value, Backward backward,
                                         const variable<Inputs>&... inputs) {
  detail::anomaly_watch* const watch = detail::anomaly_watch::current();
  if (watch != nullptr) {
    watch->computed(typeid(Backward), value,
                    ((!inputs.defined() || detail::all_finite(inputs.value())) && ...));
  }
  if (!records(inputs...)) return variable<T>(std::move(value));
  using function = detail::function_node<T, Backward, Inputs...>;
  detail::counted<detail::node<T>> node(
      new function(value.shape(), std::move(backward), inputs...));
  if (watch != nullptr) watch->recorded(typeid(Backward), *node);
  return variable<T>(std::move(value), std::move(node));
}

/// The same for a list of inputs: backward(upstream, i, grad_sink<T>) is called for each needed
/// input i.
template <typename T, typename Backward>
[[nodiscard]] variable<T> differentiable_list(tensor<T> value, Backward backward,
                                              std::span<const variable<T>> inputs) {
  bool any = false;
  for (const variable<T>& input : inputs) any = records(input) || any;
  detail::anomaly_watch* const watch = detail::anomaly_watch::current();
  if (watch != nullptr) {
    watch->computed(typeid(Backward), value,
                    std::all_of(inputs.begin(), inputs.end(), [](const variable<T>& input) {
                      return detail::all_finite(input.value());
                    }));
  }
  if (!any) return variable<T>(std::move(value));
  using function = detail::list_function_node<T, Backward>;
  detail::counted<detail::node<T>> node(new function(value.shape(), std::move(backward), inputs));
  if (watch != nullptr) watch->recorded(typeid(Backward), *node);
  return variable<T>(std::move(value), std::move(node));
}

}  // namespace parx
