// user_op: a reduction of the user's own, for elements of any trivially copyable type.
//
//   const auto better = [](const score& a, const score& b) { return a.loss < b.loss ? a : b; };
//   parx::all_reduce(world, best, parx::user_op(better, {.order = parx::reduction_order::any}));
//
// It stands where the reduce_options would. The result is x0 op x1 op x2 ... in rank order, grouped
// in any way: the operation must be associative, as floating sums nearly are. One that commutes too
// may be applied in `any` order, by more algorithms (ring): faster where vectors are large. One
// that is not even associative needs `serial` order: ((x0 op x1) op x2) ... The same function must
// be passed on every rank: that it combines elements of the same size in the same order is checked,
// that it is the same function cannot be.
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

template <typename F>
struct user_operation {
  F function;
  user_op_options options;
};

/// `function(const T&, const T&)` gives the combination of two elements as a T. It runs on whatever
/// thread makes the progress and must not call the group; an exception from it ends the group on
/// all ranks.
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

/// out[i] = a[i] op b[i], at any alignment: `context` is the F.
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
