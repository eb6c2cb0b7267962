// sum and mean over all or some axes.
#pragma once

#include <cstddef>
#include <span>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/cast.hpp>
#include <parx/core/source.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// scale * sum over `axes`.
template <typename T>
[[nodiscard]] variable<T> scaled_sum(const variable<T>& x, std::span<const int> axes,
                                     reduced_axes after, arithmetic_type<T> scale) {
  if constexpr (is_half<T>) return cast<T>(scaled_sum(cast<float>(x), axes, after, scale));
  const shape kept = keep_reduced(x.shape(), axes);
  tensor<T> total = sum(x.value(), axes, after);
  if (scale != 1) {
    for (T& element : total) element *= scale;
  }
  return differentiable(
      std::move(total),
      [kept, scale](const tensor<T>& upstream, grad_sink<T> dx) {
        dx.map([=](T u) { return u * scale; }, upstream.reshape(kept));
      },
      x);
}

/// The number of values in each mean over `axes`. Throws usage_error where it is 0, but not for a
/// result without elements (a batch without rows).
[[nodiscard]] inline std::size_t values_behind_mean(const shape& s, std::span<const int> axes) {
  const shape kept = keep_reduced(s, axes);
  std::size_t count = 1;
  for (std::size_t i = 0; i < s.rank(); ++i) count *= kept[i] == 0 ? 1 : s[i] / kept[i];
  require(count > 0, "the mean of a variable of shape {} is the mean of nothing", to_string(s));
  return count;
}

template <typename T>
[[nodiscard]] arithmetic_type<T> reciprocal_of(std::size_t count) {
  return arithmetic_type<T>(1) / static_cast<arithmetic_type<T>>(count);
}

}  // namespace detail

/// The sum over some axes; of all elements, a scalar, where none are given.
template <typename T>
[[nodiscard]] variable<T> sum(const variable<T>& x, const axis_list& axes = axis_list::all(),
                              reduced_axes after = reduced_axes::dropped,
                              call_site site = call_site::current()) {
  detail::require_no_cut_logits(x, "sum", site);
  return detail::scaled_sum(x, axes.of(x.shape()), after, 1);
}

/// The mean over some axes; of all elements, a scalar, where none are given. Throws usage_error
/// when there is nothing to average.
template <typename T>
[[nodiscard]] variable<T> mean(const variable<T>& x, const axis_list& axes = axis_list::all(),
                               reduced_axes after = reduced_axes::dropped,
                               call_site site = call_site::current()) {
  detail::require_no_cut_logits(x, "mean", site);
  const std::span<const int> list = axes.of(x.shape());
  const std::size_t count = detail::values_behind_mean(x.shape(), list);
  return detail::scaled_sum(x, list, after, detail::reciprocal_of<T>(count));
}

}  // namespace parx
