// kernels: the loops behind reduce.hpp, over units of one SIMD register (simd.hpp).
//
// The last, partial register goes through the same instructions as the others, so that an element's
// result does not depend on where a transport cuts a buffer into pieces.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include <parx/types/simd.hpp>

namespace parx::inline PARX_ABI::detail::simd {

// Operations on vectors of T. Integer sums and products get unsigned elements, which wrap around.

struct sum_of {
  template <typename T>
  static vector_of<T> apply(vector_of<T> a, vector_of<T> b) noexcept { return a + b; }
};

struct product_of {
  template <typename T>
  static vector_of<T> apply(vector_of<T> a, vector_of<T> b) noexcept { return a * b; }
};

// Floating min and max select twice, preferring either operand once. The selections differ in two
// cases. Zeros of both signs: or-ing the bits gives -0, which min requires. A NaN: the selections
// are a and b, and or-ing the bits of a NaN with anything leaves a NaN.

struct min_of {
  template <typename T>
  static vector_of<T> apply(vector_of<T> a, vector_of<T> b) noexcept {
    const vector_of<T> left = a < b ? a : b;
    if constexpr (std::is_integral_v<T>) {
      return left;
    } else {
      const vector_of<T> right = b < a ? b : a;
      return std::bit_cast<vector_of<T>>(bits_in<T>(left) | bits_in<T>(right));
    }
  }
};

struct max_of {
  template <typename T>
  static vector_of<T> apply(vector_of<T> a, vector_of<T> b) noexcept {
    const vector_of<T> left = a > b ? a : b;
    if constexpr (std::is_integral_v<T>) {
      return left;
    } else {
      const vector_of<T> right = b > a ? b : a;
      // No bits differ, or only the sign: -0 minus -0 is +0. What is taken from a NaN leaves a NaN.
      const bits_of<T> differing = bits_in<T>(left) ^ bits_in<T>(right);
      return std::bit_cast<vector_of<T>>(bits_in<T>(left) | differing) -
             std::bit_cast<vector_of<T>>(differing);
    }
  }
};

struct and_of {
  template <typename T>
  static vector_of<T> apply(vector_of<T> a, vector_of<T> b) noexcept { return a & b; }
};

struct or_of {
  template <typename T>
  static vector_of<T> apply(vector_of<T> a, vector_of<T> b) noexcept { return a | b; }
};

struct xor_of {
  template <typename T>
  static vector_of<T> apply(vector_of<T> a, vector_of<T> b) noexcept { return a ^ b; }
};

template <typename T, typename Op>
[[nodiscard]] inline unit<T> apply(const unit<T>& a, const unit<T>& b) noexcept {
  unit<T> result;
  for (std::size_t p = 0; p < unit<T>::parts; ++p) {
    result.part[p] = Op::template apply<arithmetic_type<T>>(a.part[p], b.part[p]);
  }
  return result;
}

// NaNs are rare. Adding up all results costs less than testing each: the total is a NaN if any of
// them is (or if it overflows to both infinities, which only costs a search in vain).

/// The results in a unit, added up per lane. Integers are never NaN: nothing is added up.
template <typename T>
[[nodiscard]] inline auto total_of(const unit<T>& results) noexcept {
  if constexpr (std::is_integral_v<T>) return 0;
  else if constexpr (is_half<T>) return results.part[0] + results.part[1];
  else return results.part[0];
}

template <typename T>
[[nodiscard]] inline bool is_nan(vector_of<T> total) noexcept {
  T sum = 0;
  for (std::size_t k = 0; k < register_bytes / sizeof(T); ++k) sum += total[k];
  return sum != sum;
}

/// Sets all bits of every NaN. Hardware keeps the payload of the operand that comes first, so that
/// without this a + b and b + a could differ.
template <typename T>
[[gnu::noinline]] void replace_nans(std::byte* data, std::size_t bytes) noexcept {
  using word = word_of<T>;
  constexpr auto infinity = std::bit_cast<word>(std::numeric_limits<T>::infinity());
  constexpr auto all_set = static_cast<word>(-1);
  for (std::size_t at = 0; at < bytes; at += sizeof(word)) {
    word bits;
    std::memcpy(&bits, data + at, sizeof bits);
    const bool is_nan = (bits & (all_set >> 1U)) > infinity;
    bits = is_nan ? all_set : bits;
    std::memcpy(data + at, &bits, sizeof bits);
  }
}

/// The size of the pieces that are searched for NaNs: they are then still in the L1 cache.
inline constexpr std::size_t block_bytes = 16384;

/// Stores combined(at) for each register of `out`, and combined(at, bytes) for a partial one at the
/// end. A register is combined before it is written, so that `out` may be one of the inputs.
template <typename T, typename Combined>
[[gnu::always_inline]] inline void store_all(std::byte* out, std::size_t bytes,
                                             const Combined& combined) noexcept {
  constexpr std::size_t next = register_bytes;
  const auto step = [&](std::size_t at, auto... length) __attribute__((always_inline)) {
    const unit<T> result = combined(at, length...);
    store_unit<T>(out + at, result, length...);
    return total_of(result);
  };
  for (std::size_t begin = 0; begin < bytes; begin += block_bytes) {
    const std::size_t end = std::min(bytes, begin + block_bytes);
    decltype(total_of(unit<T>{})) total{};
    std::size_t at = begin;
    // Eight at a time: with one running total, each step would wait for the previous addition.
    for (; at + 8 * next <= end; at += 8 * next) {
      decltype(total) part[8];
#pragma GCC unroll 8
      for (std::size_t i = 0; i < 8; ++i) part[i] = step(at + i * next);
      total += ((part[0] + part[1]) + (part[2] + part[3])) +
               ((part[4] + part[5]) + (part[6] + part[7]));
    }
    for (; at < end; at += next) total += step(at, std::min(next, end - at));
    if constexpr (!std::is_integral_v<T>) {
      if (is_nan<arithmetic_type<T>>(total)) [[unlikely]] replace_nans<T>(out + begin, end - begin);
    }
  }
}

template <typename T>
void scale_whole(std::byte* data, std::size_t bytes, double factor) noexcept {
  using computed = arithmetic_type<T>;
  // A NaN's payload must not reach store_unit, see store_bfloat16.
  const computed narrow = factor == factor ? static_cast<computed>(factor)
                                           : std::numeric_limits<computed>::quiet_NaN();
  for (std::size_t at = 0; at < bytes; at += register_bytes) {
    unit<T> value = load_unit<T>(data + at);
    for (auto& part : value.part) part *= narrow;
    store_unit<T>(data + at, value);
  }
}

// The kernels of reduce.hpp.

template <typename T, typename Op>
void combine(void* out, const void* a, const void* b, std::size_t count) noexcept {
  const auto* const left = static_cast<const std::byte*>(a);
  const auto* const right = static_cast<const std::byte*>(b);
  const auto combined = [left, right](std::size_t at, auto... length)
                            __attribute__((always_inline)) {
    return apply<T, Op>(load_unit<T>(left + at, length...), load_unit<T>(right + at, length...));
  };
  store_all<T>(static_cast<std::byte*>(out), count * sizeof(T), combined);
}

template <typename T>
void scale(void* data, std::size_t count, double factor) noexcept {
  auto* const to = static_cast<std::byte*>(data);
  const std::size_t rest = count * sizeof(T) % register_bytes;
  const std::size_t whole = count * sizeof(T) - rest;
  scale_whole<T>(to, whole, factor);
  if (rest == 0) return;
  std::byte last[register_bytes] = {};
  std::memcpy(last, to + whole, rest);
  scale_whole<T>(last, register_bytes, factor);
  std::memcpy(to + whole, last, rest);
}

}  // namespace parx::detail::simd
