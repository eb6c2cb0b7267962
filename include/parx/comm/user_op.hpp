// user_op: a reduction of the user's own, for elements of any trivially copyable type.
//
//   const auto better = [](const score& a, const score& b) { return a.loss < b.loss ? a : b; };
//   parx::all_reduce(world, best, parx::user_op(better, {.order = parx::reduction_order::any}));
//
// It is passed in place of the reduce_options. By default the result is x0 op x1 op x2 ... in rank
// order, grouped in any way: the operation must be associative (floating sums nearly are). If it
// also commutes, order `any` allows more algorithms (ring), which are faster for large vectors. If
// it is not associative, it needs order `serial`: ((x0 op x1) op x2) ... Every rank must pass the
// same function; parx checks the element size and the order, but cannot check the function.
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include <parx/comm/options.hpp>

namespace parx::inline PARX_ABI {

struct user_op_options {
  reduction_order order = reduction_order::ranks;
  int root = 0;  ///< for reduce
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

/// What user_op() makes: a function for reductions, and what is known of it.
template <typename F>
struct user_operation {
  F function;
  user_op_options options;
};

/// `function(const T&, const T&)` returns the combination of two elements as a T. It runs on the
/// thread that makes progress and must not call the group. If it throws, the group is closed on all
/// ranks.
template <typename F>
[[nodiscard]] user_operation<std::decay_t<F>> user_op(F&& function, user_op_options options = {}) {
  return {std::forward<F>(function), options};
}

namespace detail {

template <typename O>
inline constexpr bool is_user_operation = false;
template <typename F>
inline constexpr bool is_user_operation<user_operation<F>> = true;

template <typename O, typename T>
inline constexpr bool combines = false;
template <typename F, typename T>
inline constexpr bool combines<user_operation<F>, T> =
    std::is_trivially_copyable_v<T>&& std::is_invocable_r_v<T, const F&, const T&, const T&>;

/// out[i] = a[i] op b[i], at any alignment. `context` points to the F.
template <typename F, typename T>
void apply_user_op(const void* context, void* out, const void* a, const void* b,
                   std::size_t count) {
  const F& function = *static_cast<const F*>(context);
  using bytes = std::array<std::byte, sizeof(T)>;
  const auto load = [](const void* from, std::size_t i) {
    bytes raw;
    std::memcpy(&raw, static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
    return std::bit_cast<T>(raw);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const T combined = function(load(a, i), load(b, i));
    std::memcpy(static_cast<std::byte*>(out) + i * sizeof(T), &combined, sizeof(T));
  }
}

}  // namespace detail
}  // namespace parx
