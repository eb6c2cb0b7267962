// dtype: the element types that parx moves and reduces, as a value.
//
// Its numbers are part of the wire format (a collective's fingerprint carries one): append, never
// reorder. Every C++ type of a registered kind and width has exactly one dtype, so `long` and `long
// long` are both int64 on 64-bit Linux.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include <parx/core/error.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI {

enum class dtype : std::uint8_t {
  float32, float64, float16, bfloat16,
  int8, int16, int32, int64,
  uint8, uint16, uint32, uint64,
};

/// The number of types of elements.
inline constexpr std::size_t dtype_count = 12;

/// Bytes of one element; 0 for a value that is no dtype (read from a broken peer or file).
[[nodiscard]] constexpr std::size_t size_of(dtype type) noexcept {
  switch (type) {
    case dtype::int8: case dtype::uint8: return 1;
    case dtype::float16: case dtype::bfloat16: case dtype::int16: case dtype::uint16: return 2;
    case dtype::float32: case dtype::int32: case dtype::uint32: return 4;
    case dtype::float64: case dtype::int64: case dtype::uint64: return 8;
  }
  return 0;
}

/// "float32", "bfloat16", ...; "unknown" for a value that is no dtype.
[[nodiscard]] constexpr std::string_view name_of(dtype type) noexcept {
  constexpr std::string_view names[dtype_count] = {
      "float32", "float64", "float16", "bfloat16", "int8",   "int16",
      "int32",   "int64",   "uint8",   "uint16",   "uint32", "uint64"};
  const auto index = static_cast<std::size_t>(type);
  return index < dtype_count ? names[index] : std::string_view("unknown");
}

/// Whether it is float64, float32, float16 or bfloat16.
[[nodiscard]] constexpr bool is_floating(dtype type) noexcept {
  return type == dtype::float32 || type == dtype::float64 || type == dtype::float16 ||
         type == dtype::bfloat16;
}

namespace detail {

// bool is left out because a byte other than 0 or 1 in one is undefined behaviour, and the wide
// character types because they are text, whose width differs between systems.
template <typename T>
inline constexpr bool is_number =
    std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, wchar_t> &&
    !std::is_same_v<T, char8_t> && !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t> &&
    sizeof(T) <= 8;

template <typename T>
[[nodiscard]] constexpr dtype find_dtype() noexcept {
  if constexpr (std::is_same_v<T, float>) {
    return dtype::float32;
  } else if constexpr (std::is_same_v<T, double>) {
    return dtype::float64;
  } else if constexpr (std::is_same_v<T, float16>) {
    return dtype::float16;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return dtype::bfloat16;
  } else if constexpr (std::is_same_v<T, std::byte>) {
    return dtype::uint8;
  } else if constexpr (std::is_same_v<T, char>) {
    return dtype::int8;  // also where char is unsigned: all hosts of a job must agree
  } else {
    constexpr dtype with_sign[] = {dtype::int8, dtype::int16, dtype::int32, dtype::int64};
    constexpr dtype without[] = {dtype::uint8, dtype::uint16, dtype::uint32, dtype::uint64};
    constexpr std::size_t index = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? with_sign[index] : without[index];
  }
}

}  // namespace detail

/// Whether T (without const) is an element type that parx can reduce.
template <typename T>
inline constexpr bool is_registered =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, float16> ||
    std::is_same_v<T, bfloat16> || std::is_same_v<T, std::byte> || detail::is_number<T>;

template <typename T>
concept element = is_registered<T>;

/// The dtype of a C++ type.
template <element T>
inline constexpr dtype dtype_of = detail::find_dtype<T>();

/// Calls f(std::type_identity<T>{}) with the C++ type of `type` and returns what f returns, which
/// must be the same type for all. Throws usage_error for a value that is no dtype.
template <typename F>
decltype(auto) visit_dtype(dtype type, F&& f) {
  switch (type) {
    case dtype::float32: return std::forward<F>(f)(std::type_identity<float>{});
    case dtype::float64: return std::forward<F>(f)(std::type_identity<double>{});
    case dtype::float16: return std::forward<F>(f)(std::type_identity<float16>{});
    case dtype::bfloat16: return std::forward<F>(f)(std::type_identity<bfloat16>{});
    case dtype::int8: return std::forward<F>(f)(std::type_identity<std::int8_t>{});
    case dtype::int16: return std::forward<F>(f)(std::type_identity<std::int16_t>{});
    case dtype::int32: return std::forward<F>(f)(std::type_identity<std::int32_t>{});
    case dtype::int64: return std::forward<F>(f)(std::type_identity<std::int64_t>{});
    case dtype::uint8: return std::forward<F>(f)(std::type_identity<std::uint8_t>{});
    case dtype::uint16: return std::forward<F>(f)(std::type_identity<std::uint16_t>{});
    case dtype::uint32: return std::forward<F>(f)(std::type_identity<std::uint32_t>{});
    case dtype::uint64: return std::forward<F>(f)(std::type_identity<std::uint64_t>{});
  }
  throw_usage("{} is not the number of a dtype; the highest is {}", static_cast<int>(type),
              dtype_count - 1);
}

}  // namespace parx
