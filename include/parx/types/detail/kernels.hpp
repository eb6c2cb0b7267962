// kernels: the loops behind reduce.hpp, over units of one SIMD register (simd.hpp).
//
// The last, partial register takes the same instructions as the others, so that an element's result
// does not depend on where a transport cuts a buffer into pieces.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <parx/types/detail/simd.hpp>

namespace parx::detail::simd {

// Operations on vectors of T. Integer sums and products get unsigned elements, which wrap around.

struct sum_of {
  template <typename T>
  static vector_of<T> apply(vector_of<T> a, vector_of<T> b) noexcept { return a + b; }
};

struct product_of {
  template <typename T>
  static vector_of<T> apply(vector_of<T> a, vector_of<T> b) noexcept { return a * b; }
};

// Floating min and max pick twice, once in favour of either operand. The picks differ in two cases.
// Zeros of both signs: or-ing the bits gives -0, and-ing them +0. A NaN: the picks are a and b, and
// or-ing the bits of a NaN with anything leaves a NaN; and-ing does not, so max asks for NaNs.

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
      const auto is_nan = std::bit_cast<bits_of<T>>((a != a) | (b != b));
      return std::bit_cast<vector_of<T>>((bits_in<T>(left) & bits_in<T>(right)) | is_nan);
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
    result.part[p] = Op::template apply<computed_type<T>>(a.part[p], b.part[p]);
  }
  return result;
}

// Kernels over whole registers: `bytes` is a multiple of register_bytes.

/// A block of each operand fits the first-level cache.
inline constexpr std::size_t block_bytes = 4096;

template <typename T>
[[gnu::noinline]] void replace_nans(std::byte* data, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += register_bytes) {
    unit<T> value = load_unit<T>(data + at);
    value.part[0] = with_one_nan<T>(value.part[0]);
    store_unit<T>(data + at, value);
  }
}

template <typename T, typename Op>
void combine_whole(std::byte* out, const std::byte* a, const std::byte* b,
                   std::size_t bytes) noexcept {
  const auto step = [&](std::size_t at) {
    const unit<T> result = apply<T, Op>(load_unit<T>(a + at), load_unit<T>(b + at));
    store_unit<T>(out + at, result);
    return result.part[0];
  };
  if constexpr (!std::is_floating_point_v<T>) {
    for (std::size_t at = 0; at < bytes; at += register_bytes) step(at);
  } else {
    // NaNs are rare. Adding up all results costs less than looking at each: the total is a NaN if
    // any of them is (or where it overflows both ways, which costs time only).
    for (std::size_t begin = 0; begin < bytes; begin += block_bytes) {
      const std::size_t end = std::min(bytes, begin + block_bytes);
      vector_of<T> even{};
      vector_of<T> odd{};
      std::size_t at = begin;
      for (; at + 2 * register_bytes <= end; at += 2 * register_bytes) {
        even += step(at);
        odd += step(at + register_bytes);
      }
      if (at < end) even += step(at);
      even += odd;
      T total = 0;
      for (std::size_t k = 0; k < register_bytes / sizeof(T); ++k) total += even[k];
      if (total != total) [[unlikely]] replace_nans<T>(out + begin, end - begin);
    }
  }
}

template <typename T>
void scale_whole(std::byte* data, std::size_t bytes, double factor) noexcept {
  const auto narrow = static_cast<computed_type<T>>(factor);
  for (std::size_t at = 0; at < bytes; at += register_bytes) {
    unit<T> value = load_unit<T>(data + at);
    for (auto& part : value.part) part *= narrow;
    store_unit<T>(data + at, value);
  }
}

// Kernels over any number of bytes: the rest goes through a register's worth of zeros.

using whole_kernel = void (*)(std::byte* out, const std::byte* a, const std::byte* b,
                              std::size_t bytes) noexcept;

inline void run_on_bytes(whole_kernel kernel, std::byte* out, const std::byte* a,
                         const std::byte* b, std::size_t bytes) noexcept {
  const std::size_t rest = bytes % register_bytes;
  const std::size_t whole = bytes - rest;
  kernel(out, a, b, whole);
  if (rest == 0) return;
  std::byte last[3][register_bytes] = {};
  std::memcpy(last[0], a + whole, rest);
  std::memcpy(last[1], b + whole, rest);
  kernel(last[2], last[0], last[1], register_bytes);
  std::memcpy(out + whole, last[2], rest);
}

/// By blocks whose partial results stay in the first-level cache. A block of `out` is written only
/// after that block of every input was read, so that `out` may be any of the inputs.
inline void run_on_many(whole_kernel kernel, std::byte* out, const void* const* inputs,
                        std::size_t inputs_count, std::size_t bytes) noexcept {
  std::byte partial[block_bytes];
  for (std::size_t begin = 0; begin < bytes; begin += block_bytes) {
    const std::size_t length = std::min(block_bytes, bytes - begin);
    const auto input = [&](std::size_t k) {
      return static_cast<const std::byte*>(inputs[k]) + begin;
    };
    const std::byte* left = input(0);
    for (std::size_t k = 1; k + 1 < inputs_count; ++k) {
      run_on_bytes(kernel, partial, left, input(k), length);
      left = partial;
    }
    run_on_bytes(kernel, out + begin, left, input(inputs_count - 1), length);
  }
}

// The same for the 16-bit floats, whose partial results are kept unrounded.
template <typename T, typename Op>
void combine_many_halves(std::byte* out, const void* const* inputs, std::size_t inputs_count,
                         std::size_t bytes) noexcept {
  constexpr std::size_t step = register_bytes;
  unit<T> partial[block_bytes / step / 2];
  for (std::size_t begin = 0; begin < bytes; begin += block_bytes / 2) {
    const std::size_t length = std::min(block_bytes / 2, bytes - begin);
    const auto input = [&](std::size_t k, std::size_t at) {
      return load_unit<T>(static_cast<const std::byte*>(inputs[k]) + begin + at,
                          std::min(step, length - at));
    };
    for (std::size_t at = 0; at < length; at += step) {
      partial[at / step] = apply<T, Op>(input(0, at), input(1, at));
    }
    for (std::size_t k = 2; k < inputs_count; ++k) {
      for (std::size_t at = 0; at < length; at += step) {
        partial[at / step] = apply<T, Op>(partial[at / step], input(k, at));
      }
    }
    for (std::size_t at = 0; at < length; at += step) {
      store_unit<T>(out + begin + at, partial[at / step], std::min(step, length - at));
    }
  }
}

// What reduce.hpp hands out.

template <typename T, typename Op>
void combine(void* out, const void* a, const void* b, std::size_t count) noexcept {
  run_on_bytes(&combine_whole<T, Op>, static_cast<std::byte*>(out),
               static_cast<const std::byte*>(a), static_cast<const std::byte*>(b),
               count * sizeof(T));
}

template <typename T, typename Op>
void combine_many(void* out, const void* const* inputs, std::size_t inputs_count,
                  std::size_t count) noexcept {
  auto* const to = static_cast<std::byte*>(out);
  const std::size_t bytes = count * sizeof(T);
  if (bytes == 0) return;
  if (inputs_count == 1) {
    std::memmove(out, inputs[0], bytes);
  } else if constexpr (is_half<T>) {
    combine_many_halves<T, Op>(to, inputs, inputs_count, bytes);
  } else {
    run_on_many(&combine_whole<T, Op>, to, inputs, inputs_count, bytes);
  }
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
