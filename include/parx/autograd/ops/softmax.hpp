// softmax and log_softmax along an axis.
//
// The maximum of each row is subtracted first, so that no exponential overflows.
#pragma once

#include <cmath>
#include <cstddef>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/rows.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/cut_rows.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename T>
[[nodiscard]] variable<T> softmax_last(const variable<T>& x) {
  const tensor<T> input = x.value().contiguous();
  tensor<T> y = tensor<T>::empty(x.shape());
  const std::size_t width = x.shape().back();
  const std::size_t rows = width == 0 ? 0 : x.size() / width;
  for_each_row(rows, width, [&](std::size_t row) {
    const T* const in = input.data() + row * width;
    T* const out = y.data() + row * width;
    const T scale = T(1) / row_exp(in, row_max(in, width), width, out);
    for (std::size_t i = 0; i < width; ++i) out[i] *= scale;
  });
  return differentiable(
      y,
      [y, rows, width](const tensor<T>& upstream, grad_sink<T> dx) {
        const auto target = dx.memory();
        for_each_row(rows, width, [&](std::size_t row) {
          const T* const p = y.data() + row * width;
          const T* const u = upstream.data() + row * width;
          T* const d = target.values.data() + row * width;
          const T dot = row_dot(p, u, width);
          if (target.add) {
            for (std::size_t i = 0; i < width; ++i) d[i] += p[i] * (u[i] - dot);
          } else {
            for (std::size_t i = 0; i < width; ++i) d[i] = p[i] * (u[i] - dot);
          }
        });
      },
      x);
}

template <typename T>
[[nodiscard]] variable<T> log_softmax_last(const variable<T>& x) {
  const tensor<T> input = x.value().contiguous();
  tensor<T> y = tensor<T>::empty(x.shape());
  const std::size_t width = x.shape().back();
  const std::size_t rows = width == 0 ? 0 : x.size() / width;
  for_each_row(rows, width, [&](std::size_t row) {
    const T* const in = input.data() + row * width;
    T* const out = y.data() + row * width;
    const T highest = row_max(in, width);
    const T shift = highest + std::log(row_exp(in, highest, width, out));
    for (std::size_t i = 0; i < width; ++i) out[i] = in[i] - shift;
  });
  return differentiable(
      y,
      [y](const tensor<T>& upstream, grad_sink<T> dx) {
        dx.map(on_packets([](auto u, auto log_p, auto total) {
                 return simd::fma(decltype(u)(-vector_exp(log_p)), total, u);
               }),
               upstream, y, sum(upstream, {-1}, reduced_axes::kept));
      },
      x);
}

}  // namespace detail

/// exp(x) / sum of exp(x) along `axis`. Throws usage_error, with the caller's line, for logits that
/// are cut over ranks, and for another cut axis; log_softmax likewise.
template <typename T>
[[nodiscard]] variable<T> softmax(const variable<T>& x, int axis = -1,
                                  call_site site = call_site::current()) {
  if (resolve_axis(axis, x.shape()) + 1 == x.rank()) {
    require_whole_rows(x.value(), "softmax", site);
    return detail::softmax_last(x);
  }
  detail::require_no_cut_logits(x, "softmax", site);
  return transpose(detail::softmax_last(transpose(x, axis, -1)), axis, -1);
}

/// The logarithm of softmax, computed without losing small probabilities.
template <typename T>
[[nodiscard]] variable<T> log_softmax(const variable<T>& x, int axis = -1,
                                      call_site site = call_site::current()) {
  if (resolve_axis(axis, x.shape()) + 1 == x.rank()) {
    require_whole_rows(x.value(), "log_softmax", site);
    return detail::log_softmax_last(x);
  }
  detail::require_no_cut_logits(x, "log_softmax", site);
  return transpose(detail::log_softmax_last(transpose(x, axis, -1)), axis, -1);
}

}  // namespace parx
