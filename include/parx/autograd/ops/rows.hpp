// Sums, maxima and exponentials of a row of adjacent elements, in 16 lanes: see reduce_lanes.
#pragma once

#include <cstddef>

#include <parx/tensor/reduction.hpp>
#include <parx/tensor/vector_math.hpp>

namespace parx::inline PARX_ABI::detail {

template <typename T>
[[nodiscard]] T row_max(const T* x, std::size_t width) {
  return reduce_lanes(0, width, x[0], max_op{}, [=](std::size_t i) { return x[i]; });
}
template <typename T>
[[nodiscard]] T row_sum(const T* x, std::size_t width) {
  return reduce_lanes(0, width, T(0), add_op{}, [=](std::size_t i) { return x[i]; });
}
template <typename T>
[[nodiscard]] T row_dot(const T* x, const T* y, std::size_t width) {
  return reduce_lanes(0, width, T(0), add_op{}, [=](std::size_t i) { return x[i] * y[i]; });
}
/// e[i] = exp(x[i] - shift). e may be x.
template <typename T>
void row_probabilities(const T* x, T shift, std::size_t width, T* e) {
  for_each_packet<T>(width, [&](std::size_t at, auto... left) PARX_PACKET_BODY {
    store_packet(e + at, vector_exp<packet<T>>(load_packet(x + at, left...) - shift), left...);
  });
}
/// The same with the row's highest value; returns the sum of the exponentials.
template <typename T>
[[nodiscard]] T row_exp(const T* x, T highest, std::size_t width, T* e) {
  row_probabilities(x, highest, width, e);
  return row_sum(e, width);
}

}  // namespace parx::detail
