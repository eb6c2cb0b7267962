// algebra: the operations on placements, and the placement of each result.
//
//   R op R -> R   I op I -> I   S(d) op S(d) -> S(d)   R op V -> V      op is + - *
//   P + P -> P    R * P -> P    number * any -> the same
//   f(R) -> R     f(I) -> I     f(S) -> S              f(V) -> V        element by element
//   column_linear(R, S(0)) -> S(-1)     row_linear(S(-1), S(1)) -> P    weights are (out, in)
//   matmul(R, S(1)) -> S(1)             matmul(S(1), S(0)) -> P         of matrices
//   sum(S) -> P                         the sum of all elements
//
// Nothing here communicates. Every other combination is a compile-time error that says what to
// write instead; if it compiled, it would train and give wrong results.
#pragma once

#include <type_traits>

#include <parx/autograd/ops/activation.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/layer_norm.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/autograd/ops/loss.hpp>
#include <parx/autograd/ops/matmul.hpp>
#include <parx/autograd/ops/reduce.hpp>
#include <parx/autograd/ops/rms_norm.hpp>
#include "placement.hpp"

namespace parx::inline PARX_ABI::tp {

namespace detail {

template <typename X>
inline constexpr bool is_own = is<X, placement::sharded> || is<X, placement::varying>;

/// Whether A and B have the same placement, axis included.
template <typename A, typename B>
inline constexpr bool are_alike = [] {
  if constexpr (is<A, placement::sharded> && is<B, placement::sharded>) {
    return A::dim == B::dim;
  } else {
    return A::kind == B::kind;
  }
}();
template <typename A, typename B, placement One, placement Other>
inline constexpr bool are = (is<A, One> && is<B, Other>) || (is<A, Other> && is<B, One>);

/// The checks that A + B and A * B have in common.
template <typename A, typename B>
constexpr void require_mixable() {
  static_assert(!are<A, B, placement::invariant, placement::replicated> &&
                    !are<A, B, placement::invariant, placement::varying>,
                "an invariant value meets a replicated or varying one: its gradient would not be "
                "summed over the ranks; copy_to(axis, x) first");
  static_assert(!are<A, B, placement::invariant, placement::sharded> &&
                    !are<A, B, placement::replicated, placement::sharded>,
                "one operand is whole, the other is sharded: scatter_to<dim>(axis, whole), or "
                "gather_from(axis, chunk)");
  static_assert(!(is<A, placement::sharded> && is<B, placement::sharded>) || are_alike<A, B>,
                "the operands are sharded along different dimensions: all_to_all<dim>(axis, chunk) "
                "first");
  static_assert(
      !are<A, B, placement::sharded, placement::varying>,
      "one operand is sharded, the other varies without a sharded dimension: declare both varying");
}

/// The result with the placement of A, or of B if that is varying or partial.
template <typename A, typename B>
[[nodiscard]] auto mixed(const variable<typename A::value_type>& result) {
  if constexpr (is<B, placement::varying> || is<B, placement::partial>) {
    return B(result);
  } else {
    return A(result);
  }
}

template <placed_type A, placed_type B>
constexpr void require_summands() {
  static_assert(is<A, placement::partial> == is<B, placement::partial>,
                "a term beside partial sums is added once per rank: reduce_from(axis, sums) + "
                "term");
  if constexpr (is<A, placement::partial> == is<B, placement::partial>) require_mixable<A, B>();
}

template <placed_type X, typename Function>
[[nodiscard]] X element_wise(const X& x, Function f) {
  static_assert(!is<X, placement::partial>,
                "a function of a sum is not the sum of functions: reduce_from(axis, sums) before "
                "the activation");
  return X(f(x.local()));
}

/// The checks of a norm over the last axis of X with parameters Scale.
template <typename X, typename Scale>
constexpr void require_norm() {
  static_assert(
      !is<X, placement::partial>,
      "a norm of partial sums is not the norm of their sum: reduce_from(axis, sums) before");
  static_assert(!is_sharded_by<X, -1>,
                "a norm needs whole rows, and these are sharded along the last dimension: "
                "gather_from(axis, x) before");
  static_assert(is<X, placement::partial> || !is_own<X> || is<Scale, placement::replicated>,
                "the gradient of a norm's parameters must be summed over the ranks: "
                "copy_to(axis, scale)");
  static_assert(
      is<X, placement::partial> || is_own<X> || are_alike<X, Scale>,
      "a norm's parameters need the placement of its input: both invariant, or both replicated");
}

}  // namespace detail

template <placed_type A, placed_type B>
[[nodiscard]] auto operator+(const A& a, const B& b) {
  detail::require_summands<A, B>();
  return detail::mixed<A, B>(a.local() + b.local());
}
template <placed_type A, placed_type B>
[[nodiscard]] auto operator-(const A& a, const B& b) {
  detail::require_summands<A, B>();
  return detail::mixed<A, B>(a.local() - b.local());
}
template <placed_type A, placed_type B>
[[nodiscard]] auto operator*(const A& a, const B& b) {
  constexpr bool sums = is<A, placement::partial> || is<B, placement::partial>;
  static_assert(!(is<A, placement::partial> && is<B, placement::partial>),
                "the product of sums is not the sum of products: reduce_from(axis, sums) before");
  static_assert(!sums || detail::are_alike<A, B> || is<A, placement::replicated> ||
                    is<B, placement::replicated>,
                "partial sums may be multiplied with what is replicated alone: copy_to(axis, "
                "factor), or reduce_from(axis, sums)");
  if constexpr (!sums) detail::require_mixable<A, B>();
  return detail::mixed<A, B>(a.local() * b.local());
}
template <placed_type X>
[[nodiscard]] X operator*(const X& x, typename X::value_type factor) {
  return X(x.local() * factor);
}
template <placed_type X>
[[nodiscard]] X operator*(typename X::value_type factor, const X& x) {
  return X(x.local() * factor);
}

template <placed_type X>
[[nodiscard]] X relu(const X& x) {
  return detail::element_wise(x, [](const auto& v) { return parx::relu(v); });
}
template <placed_type X>
[[nodiscard]] X tanh(const X& x) {
  return detail::element_wise(x, [](const auto& v) { return parx::tanh(v); });
}
template <placed_type X>
[[nodiscard]] X sigmoid(const X& x) {
  return detail::element_wise(x, [](const auto& v) { return parx::sigmoid(v); });
}
template <placed_type X>
[[nodiscard]] X silu(const X& x) {
  return detail::element_wise(x, [](const auto& v) { return parx::silu(v); });
}
template <placed_type X>
[[nodiscard]] X gelu(const X& x, gelu_form form = gelu_form::erf) {
  return detail::element_wise(x, [=](const auto& v) { return parx::gelu(v, form); });
}

/// The sum of all elements; of a sharded x it is partial.
template <placed_type X>
[[nodiscard]] auto sum(const X& x) {
  static_assert(!is<X, placement::varying>,
                "there is no whole whose sum this could be a part of: declare sum(x.local())");
  if constexpr (is<X, placement::sharded>) {
    return partial(parx::sum(x.local()));
  } else {
    return X(parx::sum(x.local()));
  }
}

template <placed_type X, placed_type Scale, placed_type Shift>
[[nodiscard]] X layer_norm(const X& x, const Scale& scale, const Shift& shift,
                           const layer_norm_options& options = {}) {
  detail::require_norm<X, Scale>();
  static_assert(detail::are_alike<Scale, Shift>, "a norm's scale and shift lie alike");
  return X(parx::layer_norm(x.local(), scale.local(), shift.local(), options));
}
template <placed_type X, placed_type Scale>
[[nodiscard]] X rms_norm(const X& x, const Scale& scale, const rms_norm_options& options = {}) {
  detail::require_norm<X, Scale>();
  return X(parx::rms_norm(x.local(), scale.local(), options));
}

namespace detail {

template <typename X, typename Weight>
constexpr void require_columns() {
  static_assert(!is<X, placement::invariant>,
                "column_linear needs copy_to(axis, x): without it the gradient of x lacks the "
                "columns of the other ranks");
  static_assert(!is<X, placement::partial>,
                "column_linear needs whole inputs: reduce_from<replicated>(axis, sums)");
  static_assert(!is_own<X>,
                "column_linear needs whole inputs: gather_from<replicated>(axis, chunk)");
  static_assert(is_sharded_by<Weight, 0>,
                "the weight (out, in) of column_linear is cut by its outputs: sharded<T, 0>");
}

}  // namespace detail

/// This rank's columns of x W^T (+ bias). Weight and bias are cut by outputs.
template <placed_type X, placed_type Weight>
[[nodiscard]] auto column_linear(const X& x, const Weight& weight) {
  detail::require_columns<X, Weight>();
  return sharded<typename X::value_type, -1>(parx::linear(x.local(), weight.local()));
}
template <placed_type X, placed_type Weight, placed_type Bias>
[[nodiscard]] auto column_linear(const X& x, const Weight& weight, const Bias& bias) {
  detail::require_columns<X, Weight>();
  static_assert(is_sharded_by<Bias, 0>,
                "the bias of column_linear is cut as its outputs are: sharded<T, 0>");
  return sharded<typename X::value_type, -1>(parx::linear(x.local(), weight.local(), bias.local()));
}

/// This rank's summand of x W^T. x is cut by its last axis, the weight by its inputs.
template <placed_type X, placed_type Weight>
[[nodiscard]] auto row_linear(const X& x, const Weight& weight) {
  static_assert(!is<X, placement::partial>,
                "row_linear needs some columns of its inputs: reduce_scatter_from<-1>(axis, sums)");
  static_assert(!is<X, placement::invariant> && !is<X, placement::replicated>,
                "row_linear needs some columns of its inputs: scatter_to<-1>(axis, x)");
  static_assert(!detail::is_own<X> || is_sharded_by<X, -1>,
                "row_linear needs inputs that are cut by their last axis: all_to_all<-1>(axis, "
                "chunk)");
  static_assert(is_sharded_by<Weight, 1>,
                "the weight (out, in) of row_linear is cut by its inputs: sharded<T, 1>");
  return partial(parx::linear(x.local(), weight.local()));
}
template <placed_type X, placed_type Weight, placed_type Bias>
[[nodiscard]] auto row_linear(const X& x, const Weight& weight, const Bias&) {
  static_assert(std::is_void_v<X>,
                "a bias in row_linear is added once per rank: reduce_from(axis, row_linear(x, "
                "weight)) + bias");
  return partial(parx::linear(x.local(), weight.local()));
}

/// The product of matrices a (m, k) and b (k, n).
template <placed_type A, placed_type B>
[[nodiscard]] auto matmul(const A& a, const B& b) {
  using T = typename A::value_type;
  constexpr bool whole = is<A, placement::replicated> && is<B, placement::replicated>;
  constexpr bool same = is<A, placement::invariant> && is<B, placement::invariant>;
  constexpr bool columns = is<A, placement::replicated> && is_sharded_by<B, 1>;
  constexpr bool rows = is_sharded_by<A, 0> && is<B, placement::replicated>;
  constexpr bool inner = is_sharded_by<A, 1> && is_sharded_by<B, 0>;
  constexpr bool sums = detail::are<A, B, placement::replicated, placement::partial>;
  static_assert(!(is<A, placement::partial> && is<B, placement::partial>),
                "the product of sums is not the sum of products: reduce_from(axis, sums) before");
  static_assert(same || !(is<A, placement::invariant> || is<B, placement::invariant>),
                "an invariant matrix meets one of another placement: its gradient would not be "
                "summed over the ranks; copy_to(axis, x) first");
  static_assert(whole || same || columns || rows || inner || sums || is<A, placement::invariant> ||
                    is<B, placement::invariant> ||
                    (is<A, placement::partial> && is<B, placement::partial>),
                "no matrix product is defined for these placements; these are: replicated x "
                "sharded<T, 1>, sharded<T, 0> x replicated, sharded<T, 1> x sharded<T, 0>, "
                "replicated x partial");
  const variable<T> product = parx::matmul(a.local(), b.local());
  if constexpr (columns) {
    return sharded<T, 1>(product);
  } else if constexpr (rows) {
    return sharded<T, 0>(product);
  } else if constexpr (inner || sums) {
    return partial<T>(product);
  } else {
    return A(product);
  }
}

/// The loss of logits that all ranks have whole. See parx::cross_entropy.
template <placed_type X, std::integral Label>
[[nodiscard]] auto cross_entropy(const X& logits, const tensor<Label>& labels,
                                 const cross_entropy_options& options = {}) {
  static_assert(!is_sharded_by<X, -1>,
                "each rank has some classes of these logits: vocab_cross_entropy(axis, logits, "
                "classes, labels)");
  static_assert(!is<X, placement::partial>,
                "logits that are partial sums have no softmax: reduce_from(axis, sums) before");
  static_assert(!is<X, placement::replicated>,
                "a loss of replicated logits counts once per rank: reduce_from or gather_from with "
                "an invariant result");
  static_assert(is<X, placement::invariant> || is<X, placement::partial> ||
                    is<X, placement::replicated> || is_sharded_by<X, -1>,
                "each rank has the loss of its rows: gather_from(axis, logits)");
  return parx::cross_entropy(logits.local(), labels, options);
}

}  // namespace parx::tp
