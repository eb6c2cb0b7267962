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
// have sinks that are not needed(), which take contributions and drop them. It is destroyed once
// backward has used it. examples/guide/own_functions.md has functions of a user's.
//
// A backward in two halves (autograd/split_backward.hpp) calls it twice where some inputs lead to a
// border and others do not. In the first call the sinks of the former are needed() and the others
// later(); in the second call only the others are needed(). So its contribution to one input must
// not depend on which others are needed. It may be mutable, drop what the second call will not use,
// and return a tensor that the second call gets in place of the gradient. Wrap a function that must
// run once in single_call().
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <parx/autograd/anomaly.hpp>
#include <parx/autograd/recompute.hpp>
#include <parx/autograd/variable.hpp>
#include <parx/tensor/pointwise.hpp>
#include <parx/tensor/reduction.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// A gradient beside that of an input: until the second half of backward, or until an operation
/// has added all its steps.
template <typename T>
class held_gradient final : public node<T> {
 public:
  explicit held_gradient(const parx::shape& s) : node<T>(false, s) {}
};

[[noreturn, gnu::cold]] inline void refuse_gradient(const shape& of_input, const shape& given) {
  throw_usage("a backward function gives an input of shape {} a gradient of shape {}",
              to_string(of_input), to_string(given));
}

}  // namespace detail

/// Where a backward function puts the gradient of one input. Any number of contributions may be
/// made by map(), add() and add_broadcast(); they add up, and do nothing where none is needed().
template <typename T>
class grad_sink {
 public:
  explicit grad_sink(detail::node_base* input) noexcept
      : input_(static_cast<detail::node<T>*>(input)) {}
  /// Of an operation that runs once (single_call): what adds up in several steps does so in
  /// `apart`, if the input has a gradient already, as it would until the second half of backward.
  grad_sink(detail::node_base* input, detail::counted<detail::node<T>>& apart) noexcept
      : grad_sink(input) {
    if (needed() && input_->has_gradient()) apart_ = &apart;
  }
  grad_sink(detail::node_base* input, detail::backward_half half) noexcept
      : grad_sink(input == nullptr || input->is_of(half) ? input : nullptr) {
    is_later_ = input != nullptr && input_ == nullptr && half == detail::backward_half::inputs;
  }

  /// When false, nothing has to be computed for this input, and shape(), memory(), zeroed() and
  /// rows() may not be called.
  [[nodiscard]] bool needed() const noexcept { return input_ != nullptr; }
  /// The function will be called again for this input, in the second half of backward.
  [[nodiscard]] bool later() const noexcept { return is_later_; }
  [[nodiscard]] const parx::shape& shape() const noexcept { return input_->shape(); }

  /// The memory itself, for kernels that can both overwrite (add is false) and add: gemm with beta.
  [[nodiscard]] detail::gradient_memory<T> memory() const { return input_->memory(); }
  /// The memory, zero where nothing was contributed yet: for scattered contributions.
  [[nodiscard]] tensor<T> zeroed() const {
    const auto target = sum().memory();
    if (!target.add) target.values.fill(T(0));
    return target.values;
  }
  /// The same for contributions to `rows` of axis 0 only; the others are not touched.
  [[nodiscard]] tensor<T> rows(std::span<const std::size_t> rows) const {
    return sum().row_memory(rows);
  }
  /// Contributes f(operand...) element by element. The operands broadcast to the input's shape, or
  /// to one to which the input itself was broadcast; then the result is summed over the repeated
  /// axes.
  template <typename Function, typename... Operands>
  void map(Function&& f, const tensor<Operands>&... operand) const {
    if (!needed()) return;
    parx::shape result = shape();
    ((result = broadcast_shapes(result, operand.shape())), ...);
    if (result != shape()) {
      const tensor<T> contribution = tensor<T>::empty(result);
      map_into(contribution, f, operand...);
      add_broadcast(contribution);
      return;
    }
    const auto target = sum().memory();
    if (target.add) {
      const auto add = [&](auto old, auto... v) { return old + f(v...); };
      if constexpr (is_on_packets<std::remove_cvref_t<Function>>) {
        map_into(target.values, on_packets(add), target.values, operand...);
      } else {
        map_into(target.values, add, target.values, operand...);
      }
    } else {
      map_into(target.values, f, operand...);
    }
  }
  /// Contributes a tensor of the input's shape. It may be kept: do not write it afterwards. Throws
  /// usage_error for another shape.
  void add(const tensor<T>& contribution) const {
    if (!needed()) return;
    if (contribution.shape() != shape()) [[unlikely]] {
      detail::refuse_gradient(shape(), contribution.shape());
    }
    sum().accept(contribution.contiguous());
  }
  /// Contributes a tensor of a shape to which the input was broadcast: summed over the repeated
  /// axes.
  void add_broadcast(const tensor<T>& contribution) const {
    if (!needed()) return;
    if (contribution.shape() == shape()) {
      add(contribution);
    } else {
      const auto target = sum().memory();
      sum_into(contribution, target.values, target.add ? accumulate::add : accumulate::overwrite);
    }
  }
  /// No contribution follows. Optional, for an operation that has more to compute for other inputs:
  /// if this one is a parameter, its gradient can already be sent to other ranks.
  void done() const {
    if (needed() && apart_ == nullptr) detail::backward_pass::input_gradient_is_final(*input_);
  }

 private:
  /// Where contributions add up that are more than one addition to each element, or one that a
  /// compiler makes a multiply-add.
  [[nodiscard]] detail::node<T>& sum() const {
    if (apart_ == nullptr) return *input_;
    if (!*apart_) {
      *apart_ = detail::counted<detail::node<T>>(new detail::held_gradient<T>(input_->shape()));
    }
    return **apart_;
  }

  detail::node<T>* input_;
  detail::counted<detail::node<T>>* apart_ = nullptr;
  bool is_later_ = false;
};

/// Wraps a backward function that must compute all its gradients in one call even where backward
/// runs in two halves: because it talks to other ranks, or because the gradients of its weights are
/// small and their operands are not. The call is in the first half if any input leads to a border;
/// contributions to the other inputs are kept and delivered in the second. To have the same bits in
/// a whole backward, add to memory() once for each element, what is rounded already (no
/// multiply-add); the other functions do it themselves.
template <typename Function>
struct single_call : Function {
  explicit single_call(Function function) : Function(std::move(function)) {}
  using Function::operator();
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

template <typename Backward>
inline constexpr bool is_single_call = false;
template <typename Function>
inline constexpr bool is_single_call<single_call<Function>> = true;

template <typename T, typename Backward, typename... Inputs>
class function_node final : public node<T> {
 public:
  function_node(const parx::shape& s, Backward backward, const variable<Inputs>&... inputs)
      : node<T>(false, s), edges_{edge_to(inputs)...}, backward_(std::move(backward)) {}

  [[nodiscard]] std::size_t inputs() const noexcept override {
    return this->released ? 0 : sizeof...(Inputs);
  }
  [[nodiscard]] node_base* input(std::size_t i) const noexcept override { return edges_[i].get(); }
  void run(backward_half half) override {
    constexpr auto all = std::index_sequence_for<Inputs...>{};
    if constexpr (is_single_call<Backward>) {
      if (half == backward_half::weights && this->leads_to_border) return deliver(half, all);
      if (this->gradient.defined()) run_once(half, all);
    } else {
      if (this->gradient.defined()) run(half, all);
    }
  }
  void release() noexcept override {
    this->released = true;
    backward_.reset();
    edges_ = {};
    held_ = {};
  }

 private:
  template <std::size_t... I>
  void run(backward_half half, std::index_sequence<I...> /*inputs*/) {
    const auto call = [&] {
      return (*backward_)(std::as_const(this->gradient),
                          grad_sink<Inputs>(edges_[I].get(), half)...);
    };
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
    } else {
      tensor<T> kept = call();
      if (half == backward_half::inputs) this->gradient = std::move(kept);
    }
  }
  /// In a first half what is for inputs of the second is held until then.
  template <std::size_t... I>
  void run_once(backward_half half, std::index_sequence<I...> inputs) {
    const auto sink = [half]<typename Input>(node_base* input, counted<node<Input>>& held) {
      held.reset();  // what a failed backward has left
      if (input == nullptr || input->is_of(half)) return grad_sink<Input>(input, held);
      held = counted<node<Input>>(
          new held_gradient<Input>(static_cast<node<Input>*>(input)->shape()));
      return grad_sink<Input>(held.get());
    };
    (*backward_)(std::as_const(this->gradient), sink(edges_[I].get(), std::get<I>(held_))...);
    deliver(half, inputs);
    if (half != backward_half::inputs) return;
    backward_.reset();
    this->drop_gradient();
  }
  template <std::size_t... I>
  void deliver(backward_half half, std::index_sequence<I...> /*inputs*/) {
    const auto hand_over = [half]<typename Input>(node_base* input, counted<node<Input>>& held) {
      if (!held || !input->is_of(half)) return;
      if (held->gradient.defined()) {
        static_cast<node<Input>*>(input)->accept(std::move(held->gradient));
      }
      held.reset();
    };
    (hand_over(edges_[I].get(), std::get<I>(held_)), ...);
  }

  struct nothing {};
  std::array<counted<node_base>, sizeof...(Inputs)> edges_;
  std::optional<Backward> backward_;
  [[no_unique_address]] std::conditional_t<is_single_call<Backward>,
                                           std::tuple<counted<node<Inputs>>...>, nothing>
      held_;
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
  void run(backward_half half) override {
    if (!this->gradient.defined()) return;
    for (std::size_t i = 0; i < edges_.size(); ++i) {
      const grad_sink<T> sink(edges_[i].get(), half);
      if (sink.needed()) (*backward_)(std::as_const(this->gradient), i, sink);
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

/// Throws usage_error, which names the operation, for logits that are cut over ranks.
template <typename Backward>
[[noreturn, gnu::noinline]] void refuse_cut_input(const cut_rows& cut) {
  refuse_cut_logits(operation_name(typeid(Backward).name()), cut, cut.axis->cut_at());
}
template <typename Backward, typename Rows>
void require_no_cut_logits(const Rows& x) {
  const cut_rows* const cut = x.cut();
  if (cut != nullptr && cut->result == cut_result::logits) [[unlikely]]
    refuse_cut_input<Backward>(*cut);
}

/// differentiable() of any inputs.
template <typename T, typename Backward, typename... Inputs>
[[nodiscard]] variable<T> recorded(tensor<T>&& value, Backward&& backward,
                                   const variable<Inputs>&... inputs) {
  anomaly_watch* const watch = anomaly_watch::current();
  if (watch != nullptr && ((!inputs.defined() || detail::all_finite(inputs.value())) && ...)) {
    watch->computed(typeid(Backward), value);
  }
  if (!records(inputs...)) return variable<T>(std::move(value));
  using function = detail::function_node<T, Backward, Inputs...>;
  detail::counted<detail::node<T>> node(
      new function(value.shape(), std::move(backward), inputs...));
  if (watch != nullptr) watch->recorded(typeid(Backward), *node);
  return variable<T>(std::move(value), std::move(node));
}

}  // namespace detail

/// A variable with `value` whose backward is backward(upstream, grad_sink<Inputs>...): see above.
/// Throws usage_error for logits that are cut by classes over ranks, because `value` would be that
/// of this rank's classes.
template <typename T, typename Backward, typename... Inputs>
[[nodiscard]] variable<T> differentiable(tensor<T> value, Backward backward,
                                         const variable<Inputs>&... inputs) {
  constexpr bool fits = std::is_invocable_v<Backward&, const tensor<T>&, grad_sink<Inputs>...>;
  static_assert(fits,
                "the backward function takes the gradient of the result and a grad_sink for each "
                "input: [x = x.value()](const tensor<float>& upstream, grad_sink<float> dx) {}");
  (detail::require_no_cut_logits<Backward>(inputs), ...);
  if constexpr (fits) return detail::recorded(std::move(value), std::move(backward), inputs...);
}
/// The same for an operation that may take such logits: its result is right on all ranks, or is a
/// view, cast or map of theirs, which knows the cut. Throws for a view in which the classes are not
/// the last axis.
template <typename T, typename Backward, typename... Inputs>
[[nodiscard]] variable<T> differentiable_of_cut(tensor<T> value, Backward backward,
                                                const variable<Inputs>&... inputs) {
  if (const cut_rows* const cut = value.cut(); cut != nullptr) [[unlikely]] {
    if (!detail::has_rows(*cut, value.shape(), value.strides()))
      detail::require_no_cut_logits<Backward>(value);
  }
  return detail::recorded(std::move(value), std::move(backward), inputs...);
}

/// differentiable() of a list of inputs: backward(upstream, i, grad_sink<T>) is called for each
/// needed input i.
template <typename T, typename Backward>
[[nodiscard]] variable<T> differentiable_list(tensor<T> value, Backward backward,
                                              std::span<const variable<T>> inputs) {
  bool any = false;
  for (const variable<T>& input : inputs) {
    detail::require_no_cut_logits<Backward>(input);
    any = records(input) || any;
  }
  anomaly_watch* const watch = anomaly_watch::current();
  const auto is_finite = [](const variable<T>& each) { return detail::all_finite(each.value()); };
  if (watch != nullptr && std::all_of(inputs.begin(), inputs.end(), is_finite)) {
    watch->computed(typeid(Backward), value);
  }
  if (!any) return variable<T>(std::move(value));
  using function = detail::list_function_node<T, Backward>;
  detail::counted<detail::node<T>> node(new function(value.shape(), std::move(backward), inputs));
  if (watch != nullptr) watch->recorded(typeid(Backward), *node);
  return variable<T>(std::move(value), std::move(node));
}

}  // namespace parx
