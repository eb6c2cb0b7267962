// transitions: the functions that convert placements. There are no others.
//
//   function                  from -> to       forward         backward          bytes sent a rank
//   copy_to                   I -> R           -               all-reduce        2 c
//   reduce_from               P -> I           all-reduce      -                 2 c
//   reduce_from<replicated>   P -> R           all-reduce      all-reduce        4 c
//   gather_from               S(d) -> I        all-gather      -                 c
//   gather_from<replicated>   S(d) -> R        all-gather      reduce-scatter    2 c
//   scatter_to<d>             I -> S(d)        -               all-gather        c
//   scatter_to<d>             R -> S(d)        -               -                 0
//   reduce_scatter_from<d>    P -> S(d)        reduce-scatter  all-gather        2 c
//   all_to_all<to>            S(from) -> S(to) all-to-all      all-to-all        2 c / n
//
// c is (n - 1) / n of the bytes of the whole, n the size of the axis. Collective: all ranks of the
// axis call the same transitions in the same order, and run backward. All block the caller. They
// throw usage_error for shapes that do not fit, parx::error if communication fails. The axis must
// outlive the graph. Tensors are cut by the rule of chunk_begin; `whole` is the total extent of the
// cut axis, needed if the chunks are uneven, else 0.
// Source: Megatron-LM's tensor_parallel/mappings.py; the types of meta-pytorch/spmd_types.
#pragma once

#include <cstddef>

#include <parx/autograd/ops/across.hpp>
#include "placement.hpp"

namespace parx::inline PARX_ABI::tp {

namespace detail {

/// What a rank's gradient is, for a placement whose value is the same on all ranks.
template <typename Placed>
inline constexpr across::whole_gradient gradient_of =
    is<Placed, placement::replicated> ? across::whole_gradient::partial
                                      : across::whole_gradient::same;

template <template <typename> class To>
constexpr void require_whole() {
  static_assert(is<To<float>, placement::replicated> || is<To<float>, placement::invariant>,
                "the result is whole on all ranks: invariant, or replicated where they use it for "
                "different things");
}

}  // namespace detail

/// Begins a part of the model that is cut over the ranks.
template <placed_type X>
[[nodiscard]] replicated<typename X::value_type> copy_to(rank_axis& axis, const X& x) {
  static_assert(!is<X, placement::replicated>,
                "this is replicated already: a second copy_to sums its gradient twice");
  static_assert(!is<X, placement::partial>,
                "partial sums are no tensor to copy: reduce_from<replicated>(axis, sums)");
  static_assert(!is<X, placement::sharded> && !is<X, placement::varying>,
                "copy_to takes what all ranks have: gather_from<replicated>(axis, chunk)");
  return replicated(across::copy(axis, x.local()));
}

/// Ends such a part: the sum of the ranks' results.
template <template <typename> class To = invariant, placed_type X>
[[nodiscard]] To<typename X::value_type> reduce_from(rank_axis& axis, const X& x) {
  detail::require_whole<To>();
  static_assert(!is<X, placement::replicated> && !is<X, placement::invariant>,
                "all ranks have this already: its sum over the ranks counts it once per rank");
  static_assert(!is<X, placement::sharded>,
                "reduce_from adds summands, these are chunks: gather_from(axis, chunk)");
  static_assert(!is<X, placement::varying>,
                "reduce_from adds summands: declare partial<T>(x.local()) if these are");
  return To(across::sum(axis, x.local(), detail::gradient_of<To<typename X::value_type>>));
}

template <template <typename> class To = invariant, placed_type X>
[[nodiscard]] To<typename X::value_type> gather_from(rank_axis& axis, const X& x,
                                                     std::size_t whole = 0) {
  detail::require_whole<To>();
  static_assert(!is<X, placement::replicated> && !is<X, placement::invariant>,
                "all ranks have the whole of this already: gather_from is for chunks");
  static_assert(!is<X, placement::partial>,
                "gather_from joins chunks, these are summands: reduce_from(axis, sums)");
  static_assert(!is<X, placement::varying>,
                "gather_from joins chunks of an axis: declare sharded<T, dim>(x.local()) if these "
                "are");
  using T = typename X::value_type;
  if constexpr (is<X, placement::sharded>) {
    return To(across::gather(axis, x.local(), X::dim, detail::gradient_of<To<T>>, whole));
  } else {
    return To<T>(x.local());
  }
}

template <int Dim, placed_type X>
[[nodiscard]] sharded<typename X::value_type, Dim> scatter_to(rank_axis& axis, const X& x) {
  static_assert(
      !is<X, placement::partial>,
      "a chunk of a partial sum is not a chunk of the sum: reduce_scatter_from<dim>(axis, "
      "sums)");
  static_assert(!is<X, placement::sharded> && !is<X, placement::varying>,
                "scatter_to wants a tensor that all ranks have whole; all_to_all<dim>(axis, chunk) "
                "changes the dimension that is sharded");
  using T = typename X::value_type;
  return sharded<T, Dim>(across::chunk(axis, x.local(), Dim, detail::gradient_of<X>));
}

template <int Dim, placed_type X>
[[nodiscard]] sharded<typename X::value_type, Dim> reduce_scatter_from(rank_axis& axis,
                                                                       const X& x) {
  static_assert(!is<X, placement::replicated> && !is<X, placement::invariant>,
                "all ranks have the sum of this already: scatter_to<dim>(axis, x)");
  static_assert(!is<X, placement::sharded> && !is<X, placement::varying>,
                "reduce_scatter_from adds summands, these are chunks: all_to_all<dim>(axis, chunk) "
                "cuts them otherwise");
  return sharded<typename X::value_type, Dim>(across::sum_chunk(axis, x.local(), Dim));
}

template <int To, placed_type X>
[[nodiscard]] sharded<typename X::value_type, To> all_to_all(rank_axis& axis, const X& x,
                                                             std::size_t whole = 0) {
  static_assert(is<X, placement::sharded>,
                "all_to_all leads from one cut to another: of what all ranks have a chunk is "
                "scatter_to<dim>(axis, x), of partial sums reduce_scatter_from<dim>(axis, sums)");
  using T = typename X::value_type;
  if constexpr (is<X, placement::sharded>) {
    static_assert(X::dim != To, "this is cut by that axis already");
    return sharded<T, To>(across::exchange(axis, x.local(), X::dim, To, whole));
  } else {
    return sharded<T, To>(x.local());
  }
}

}  // namespace parx::tp
