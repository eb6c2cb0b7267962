// reduce: the reductions of collectives, as kernels on plain memory chosen by dtype and operation.
//
// `a op b` and `b op a` have equal bits, so that ranks may combine their parts in either order:
// where one operand is a NaN the result is one, every NaN result has all bits set, and min and max
// take -0 to be less than +0. Integers wrap around. The 16-bit floats are computed in float and
// rounded once per call. Kernels need no alignment, never allocate or throw, and may run on any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <parx/core/error.hpp>
#include <parx/types/detail/kernels.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// What an element-wise reduction computes. The numbers are part of the wire format.
enum class reduce_op : std::uint8_t {
  sum,
  avg,          ///< sum * (1 / world); floating types only
  product,
  min,
  max,
  band,         ///< bitwise and; integers only, as bor and bxor
  bor,
  bxor,
  premul_sum,   ///< sum of factor * contribution; floating types only
};

/// The number of operations.
inline constexpr std::size_t reduce_op_count = 9;

/// "sum", "premul_sum", ...; "unknown" for a value that is no operation.
[[nodiscard]] constexpr std::string_view name_of(reduce_op op) noexcept {
  constexpr std::string_view names[reduce_op_count] = {"sum",  "avg", "product", "min",       "max",
                                                       "band", "bor", "bxor",    "premul_sum"};
  const auto index = static_cast<std::size_t>(op);
  return index < reduce_op_count ? names[index] : std::string_view("unknown");
}

/// Whether `op` is defined for elements of `type`.
[[nodiscard]] constexpr bool is_defined(dtype type, reduce_op op) noexcept {
  switch (op) {
    case reduce_op::sum: case reduce_op::product: case reduce_op::min: case reduce_op::max:
      return size_of(type) != 0;
    case reduce_op::avg: case reduce_op::premul_sum: return is_floating(type);
    case reduce_op::band: case reduce_op::bor: case reduce_op::bxor:
      return size_of(type) != 0 && !is_floating(type);
  }
  return false;
}

/// out[i] = a[i] op b[i]. `out` may be exactly `a` or exactly `b`; otherwise the ranges must not
/// overlap.
using reduce_function = void (*)(void* out, const void* a, const void* b,
                                 std::size_t count) noexcept;

/// data[i] *= factor. For avg the factor is 1 / world, rounded: the result equals a division where
/// the world size is a power of two, else it is at most a unit in the last place off (NCCL
/// multiplies, too). Measured: with a division, all_reduce of 256 KiB takes 3 ranks 10 % longer, in
/// shared buffers 25 %.
using scale_function = void (*)(void* data, std::size_t count, double factor) noexcept;

namespace detail {

/// The element type of a kernel: T, but for char and std::byte the integer that dtype_of names.
template <typename T>
using kernel_element =
    std::conditional_t<std::is_same_v<T, char>, std::int8_t,
                       std::conditional_t<std::is_same_v<T, std::byte>, std::uint8_t, T>>;

[[noreturn]] inline void throw_undefined(dtype type, reduce_op op) {
  const bool bitwise = op == reduce_op::band || op == reduce_op::bor || op == reduce_op::bxor;
  throw_usage("reduce_op::{} is not defined for {} elements; it needs {} ones", name_of(op),
              name_of(type), bitwise ? "integer" : "floating-point");
}

}  // namespace detail

/// The kernel of `op` for elements of T, as reduce_kernel() gives it.
template <typename T>
[[nodiscard]] reduce_function reduce_kernel_for(reduce_op op) {
  using namespace detail::simd;
  if (!is_defined(dtype_of<T>, op)) detail::throw_undefined(dtype_of<T>, op);
  switch (op) {
    case reduce_op::min: return &combine<T, min_of>;
    case reduce_op::max: return &combine<T, max_of>;
    default: break;
  }
  // The rest do not depend on the sign: one kernel serves int32 and uint32.
  if constexpr (std::is_integral_v<T>) {
    using bits = std::make_unsigned_t<T>;
    switch (op) {
      case reduce_op::product: return &combine<bits, product_of>;
      case reduce_op::band: return &combine<bits, and_of>;
      case reduce_op::bor: return &combine<bits, or_of>;
      case reduce_op::bxor: return &combine<bits, xor_of>;
      default: return &combine<bits, sum_of>;
    }
  } else {
    return op == reduce_op::product ? &combine<T, product_of> : &combine<T, sum_of>;
  }
}

namespace detail {

template <typename T>
[[nodiscard]] scale_function scale_kernel_for() {
  if constexpr (is_floating(dtype_of<T>)) return &simd::scale<T>;
  else throw_usage("{} cannot be scaled by a fraction; use a floating type", name_of(dtype_of<T>));
}

}  // namespace detail

/// The kernel of `op`. avg and premul_sum give the one of sum: their scaling is up to the caller.
/// Throws usage_error where `op` is not defined for `type`.
[[nodiscard]] reduce_function reduce_kernel(dtype type, reduce_op op);

/// The scaling kernel of a floating type. Throws usage_error for an integer type.
[[nodiscard]] scale_function scale_kernel(dtype type);

/// Where a collective gets its kernels: from reduce_kernel and scale_kernel, or, header-only and
/// where the element type is known at compile time, from functions that instantiate the kernels of
/// that type only.
struct reduce_kernels {
  reduce_function (*combine)(dtype type, reduce_op op);
  scale_function (*scale)(dtype type);
};
inline constexpr reduce_kernels kernels_of_any{&reduce_kernel, &scale_kernel};
#ifdef PARX_SEPARATE_COMPILATION
template <element T>
inline constexpr const reduce_kernels& kernels_of = kernels_of_any;  // the library has all
#else
template <element T>
inline constexpr reduce_kernels kernels_of{
    [](dtype, reduce_op op) { return reduce_kernel_for<detail::kernel_element<T>>(op); },
    [](dtype) { return detail::scale_kernel_for<detail::kernel_element<T>>(); }};
#endif

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/types/detail/reduce_impl.hpp>
#endif
