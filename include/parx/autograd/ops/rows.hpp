// Sums, maxima and exponentials of a row of adjacent elements, in 16 lanes (see reduce_lanes), and
// how the threads of a rank divide rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <parx/core/parallel_for.hpp>
#include <parx/tensor/reduction.hpp>
#include <parx/tensor/vector_math.hpp>

namespace parx::inline PARX_ABI::detail {

/// body(row) for each row, by the threads of the rank.
template <typename Body>
void for_each_row(std::size_t rows, std::size_t width, const Body& body) {
  parallel_for(rows, rows_of_a_block(width), [&](std::size_t row, std::size_t last) {
    for (; row < last; ++row) body(row);
  });
}
/// Copies `width` elements from from(i) to to(i) for each i below `count`.
template <typename From, typename To>
void copy_rows(std::size_t width, std::size_t count, const From& from, const To& to) {
  for_each_row(count, width, [&](std::size_t i) { std::copy_n(from(i), width, to(i)); });
}
/// Adds `width` elements at from(i) to those at to(i). Rows may be added to several times: threads
/// divide the columns, so that terms come in the order of i.
template <typename From, typename To>
void add_rows(std::size_t width, std::size_t count, const From& from, const To& to) {
  const std::size_t grain = elements_of_a_block / std::max<std::size_t>(count, 1) / 16 * 16;
  parallel_for(width, std::max<std::size_t>(grain, 16), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = 0; i < count; ++i) {
      auto* __restrict const sum = to(i);
      const auto* const addend = from(i);
      for (std::size_t j = begin; j < end; ++j) sum[j] += addend[j];
    }
  });
}
/// body(first, last, sums) for blocks of rows; `sums` are `count` zeros, to which the body adds.
/// Returns the sum over all blocks, added in their order.
template <typename T, typename Body>
[[nodiscard]] tensor<T> sum_over_rows(std::size_t rows, std::size_t width, std::size_t count,
                                      const Body& body) {
  const std::size_t grain = std::max<std::size_t>(rows_of_a_block(width), 64);
  const std::size_t blocks = std::max<std::size_t>((rows + grain - 1) / grain, 1);
  const tensor<T> sums = tensor<T>::zeros({blocks, count});
  parallel_for(rows, grain, [&](std::size_t first, std::size_t last) {
    body(first, last, sums.data() + first / grain * count);
  });
  for (std::size_t block = 1; block < blocks; ++block) {
    T* __restrict const total = sums.data();
    const T* const part = total + block * count;
    for (std::size_t i = 0; i < count; ++i) total[i] += part[i];
  }
  return sums.select(0, 0);
}

template <typename T>
[[nodiscard]] T row_max(const T* x, std::size_t width) {
  return reduce_lanes(0, width, x[0], max_op{}, adjacent<T>{x});
}
template <typename T>
[[nodiscard]] T row_sum(const T* x, std::size_t width) {
  return reduce_lanes(0, width, T(0), add_op{}, adjacent<T>{x});
}
template <typename T>
[[nodiscard]] T row_dot(const T* x, const T* y, std::size_t width) {
  return reduce_lanes(0, width, T(0), add_op{}, [=](std::size_t i) { return x[i] * y[i]; });
}
/// to[i] = value(i), or adds it: rounded, as what is held until the second half of backward is. In
/// one loop, compilers would round once, by a multiply-add.
template <typename T, typename Value>
[[gnu::always_inline]] inline void contribute(T* __restrict to, std::size_t count, bool adds,
                                              const Value& value) {
  if (!adds) {
    for (std::size_t i = 0; i < count; ++i) to[i] = value(i);
    return;
  }
  constexpr std::size_t at_once = 256;
  std::array<T, at_once> terms;
  for (std::size_t first = 0; first < count; first += at_once) {
    const std::size_t last = std::min(count, first + at_once);
    for (std::size_t i = first; i < last; ++i) terms[i - first] = value(i);
    for (std::size_t i = first; i < last; ++i) to[i] += terms[i - first];
  }
}
/// e[i] = exp(x[i] - shift). e may be x.
template <typename T>
void row_exp_shifted(const T* x, T shift, std::size_t width, T* e) {
  for_each_packet<T>(width, [&](std::size_t at, auto... left) PARX_PACKET_BODY {
    store_packet(e + at, vector_exp<packet<T>>(load_packet(x + at, left...) - shift), left...);
  });
}
/// The same with the row's highest value; returns the sum of the exponentials.
template <typename T>
[[nodiscard]] T row_exp(const T* x, T highest, std::size_t width, T* e) {
  row_exp_shifted(x, highest, width, e);
  return row_sum(e, width);
}

}  // namespace parx::detail
