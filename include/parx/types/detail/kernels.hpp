// kernels: the loops behind reduce.hpp, written so that the compiler turns each into SIMD code.
//
// Elements are read and written by memcpy: buffers come from sockets and from other types of the same
// width (long and long long), so neither alignment nor type-based aliasing may be assumed. Each loop
// is declared free of dependences between its steps, which holds because `out` is either one of the
// inputs or apart from them; without it, compilers take a scalar path for `out == a`.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <parx/types/half.hpp>

#if defined(__clang__)
#define PARX_INDEPENDENT_STEPS _Pragma("clang loop vectorize(assume_safety)")
#else
#define PARX_INDEPENDENT_STEPS _Pragma("GCC ivdep")
#endif

namespace parx::detail {

template <typename T>
[[nodiscard]] inline T load(const void* from, std::size_t index) noexcept {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
inline void store(void* to, std::size_t index, T value) noexcept {
  std::memcpy(static_cast<std::byte*>(to) + index * sizeof(T), &value, sizeof(T));
}

/// Every NaN becomes the same one: hardware would keep the payload of whichever operand is first.
template <typename T>
[[nodiscard]] inline T one_nan(T value) noexcept {
  return value != value ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <typename T>
using bits_of = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

// Integers are computed as unsigned numbers of at least 32 bits, where overflow is defined (two
// uint16 would be promoted to int, and their product overflow it).
template <typename T>
using wrapping = std::conditional_t<sizeof(T) < 4, std::uint32_t, std::make_unsigned_t<T>>;

struct sum_of {
  template <typename T>
  static T apply(T a, T b) noexcept {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<wrapping<T>>(a) + static_cast<wrapping<T>>(b));
    } else {
      return one_nan(a + b);
    }
  }
};

struct product_of {
  template <typename T>
  static T apply(T a, T b) noexcept {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<wrapping<T>>(a) * static_cast<wrapping<T>>(b));
    } else {
      return one_nan(a * b);
    }
  }
};

// Floating min and max: where a and b are equal, they can differ only in the sign of zero, and or-ing
// (min) or and-ing (max) the bits decides that; otherwise both picks are the same number.
struct min_of {
  template <typename T>
  static T apply(T a, T b) noexcept {
    if constexpr (std::is_integral_v<T>) {
      return a < b ? a : b;
    } else {
      const T left = a < b ? a : b;
      const T right = b < a ? b : a;
      const T smaller =
          std::bit_cast<T>(std::bit_cast<bits_of<T>>(left) | std::bit_cast<bits_of<T>>(right));
      return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : smaller;
    }
  }
};

struct max_of {
  template <typename T>
  static T apply(T a, T b) noexcept {
    if constexpr (std::is_integral_v<T>) {
      return a > b ? a : b;
    } else {
      const T left = a > b ? a : b;
      const T right = b > a ? b : a;
      const T larger =
          std::bit_cast<T>(std::bit_cast<bits_of<T>>(left) & std::bit_cast<bits_of<T>>(right));
      return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : larger;
    }
  }
};

struct and_of {
  template <typename T>
  static T apply(T a, T b) noexcept { return static_cast<T>(a & b); }
};

struct or_of {
  template <typename T>
  static T apply(T a, T b) noexcept { return static_cast<T>(a | b); }
};

struct xor_of {
  template <typename T>
  static T apply(T a, T b) noexcept { return static_cast<T>(a ^ b); }
};

/// One element as the type in which it is computed.
template <typename T>
[[nodiscard]] inline auto load_computed(const void* from, std::size_t index) noexcept {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return float_from_bfloat16(load<std::uint16_t>(from, index));
  } else if constexpr (std::is_same_v<T, float16>) {
    return float_from_float16(load<std::uint16_t>(from, index));
  } else {
    return load<T>(from, index);
  }
}

template <typename T, typename Computed>
inline void store_computed(void* to, std::size_t index, Computed value) noexcept {
  if constexpr (std::is_same_v<T, bfloat16>) {
    store(to, index, bfloat16_from_float(value));
  } else if constexpr (std::is_same_v<T, float16>) {
    store(to, index, float16_from_float(value));
  } else {
    store<T>(to, index, value);
  }
}

template <typename T, typename Op>
[[gnu::noinline]] void combine(void* out, const void* a, const void* b,
                               std::size_t count) noexcept {
  PARX_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < count; ++i) {
    store_computed<T>(out, i, Op::apply(load_computed<T>(a, i), load_computed<T>(b, i)));
  }
}

/// The same over many inputs, by blocks that stay in the first-level cache. Going through `partial`
/// lets `out` be any of the inputs: a block of it is written only after all inputs' were read.
template <typename T, typename Op>
void combine_many(void* out, const void* const* inputs, std::size_t inputs_count,
                  std::size_t count) noexcept {
  using computed = decltype(load_computed<T>(nullptr, 0));
  constexpr std::size_t block = 4096 / sizeof(computed);
  if (inputs_count == 1) {
    if (count != 0) std::memmove(out, inputs[0], count * sizeof(T));
    return;
  }
  computed partial[block];
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t length = std::min(block, count - begin);
    const auto input = [&](std::size_t k) {
      return static_cast<const std::byte*>(inputs[k]) + begin * sizeof(T);
    };
    std::byte* const target = static_cast<std::byte*>(out) + begin * sizeof(T);
    for (std::size_t i = 0; i < length; ++i) {
      partial[i] = Op::apply(load_computed<T>(input(0), i), load_computed<T>(input(1), i));
    }
    for (std::size_t k = 2; k < inputs_count; ++k) {
      const std::byte* const next = input(k);
      for (std::size_t i = 0; i < length; ++i) {
        partial[i] = Op::apply(partial[i], load_computed<T>(next, i));
      }
    }
    for (std::size_t i = 0; i < length; ++i) store_computed<T>(target, i, partial[i]);
  }
}

template <typename T>
void scale(void* data, std::size_t count, double factor) noexcept {
  using computed = decltype(load_computed<T>(nullptr, 0));
  const auto narrow = static_cast<computed>(factor);
  PARX_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < count; ++i) {
    store_computed<T>(data, i, load_computed<T>(data, i) * narrow);
  }
}

}  // namespace parx::detail

#undef PARX_INDEPENDENT_STEPS
