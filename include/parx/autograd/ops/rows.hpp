// Sums, maxima and exponentials of a row of adjacent elements, in 16 lanes: see reduce_lanes.
#pragma once

#include <cstddef>

#include <parx/tensor/math.hpp>
#include <parx/tensor/reduction.hpp>

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
/// e[i] = exp(x[i] - highest); returns their sum. e may be x.
template <typename T>
[[nodiscard]] T row_exp(const T* x, T highest, std::size_t width, T* e) {
  for (std::size_t i = 0; i < width; ++i) e[i] = vector_exp(x[i] - highest);
  return row_sum(e, width);
}

}  // namespace parx::detail
