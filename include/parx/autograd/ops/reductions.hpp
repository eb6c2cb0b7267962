// var, stddev, max, min, argmax, argmin, logsumexp, norm, prod and cumsum over axes, of tensors and
// variables; sum and mean are in reduce.hpp.
//
// Empty lists of axes mean none; without a list it is all axes. Sums are in the order of
// tensor/reduction.hpp, in float for 16-bit numbers. NaN goes into every result that it is behind.
// All throw usage_error for an axis that does not exist and, with the caller's line, for logits
// that are cut over ranks (naming parx::whole); along the last axis also for other rows that are.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/compare.hpp>
#include <parx/autograd/ops/detail/axis_strides.hpp>
#include <parx/autograd/ops/detail/kinds.hpp>
#include <parx/autograd/ops/elementary.hpp>
#include <parx/autograd/ops/index.hpp>
#include <parx/autograd/ops/reduce.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/arithmetic.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// The axes of a reduction, and the shape that it keeps.
struct reduced {
  std::vector<int> axes;
  shape kept;
  std::size_t count = 1;  ///< values behind each result

  /// Throws usage_error where rows along these axes are parts.
  template <typename X>
  reduced(std::string_view call, const X& x, std::span<const int> list, call_site site)
      : axes(list.begin(), list.end()), kept(keep_reduced(x.shape(), list)) {
    bool last = false;
    for (const int axis : list) last |= resolve_axis(axis, x.shape()) + 1 == x.rank();
    if (last) require_whole_rows(x, call, site);
    else require_no_cut_logits(x, call, site);
    for (std::size_t i = 0; i < x.rank(); ++i) {
      if (kept[i] == 1) count *= x.shape()[i];
    }
  }
  [[nodiscard]] shape result(const shape& s, reduced_axes after) const {
    return after == reduced_axes::kept ? kept : drop_reduced(s, axes);
  }
};

[[nodiscard]] inline std::span<const int> listed(std::initializer_list<int> axes) {
  return {axes.begin(), axes.size()};
}

template <typename T>
[[nodiscard]] variable<T> variance_over(const variable<T>& x, const reduced& over,
                                        double correction, reduced_axes after, call_site site) {
  if constexpr (is_half<T>) {
    return cast<T>(variance_over(cast<float>(x), over, correction, after, site));
  } else {
    const double freedom = std::max(static_cast<double>(over.count) - correction, 0.0);
    const tensor<T> mean =
        sum(x.value(), over.axes, reduced_axes::kept, site) * (T(1) / static_cast<T>(over.count));
    const tensor<T> centred = map([](T v, T m) { return v - m; }, x.value(), mean);
    const tensor<T> squares = map([](T v) { return v * v; }, centred);
    const T share = static_cast<T>(1 / freedom);  // of nothing: infinite, and the result NaN
    tensor<T> y = sum(squares, over.axes, after, site) * share;
    return differentiable(
        std::move(y),
        [centred, share, kept = over.kept](const tensor<T>& upstream, grad_sink<T> dx) {
          dx.map([=](T u, T v) { return 2 * share * v * u; }, upstream.reshape(kept), centred);
        },
        x);
  }
}

template <typename T, typename Reduce>
[[nodiscard]] variable<T> extreme(const variable<T>& x, const reduced& over, reduced_axes after,
                                  Reduce reduce) {
  const tensor<T> y = reduce(x.value());
  return differentiable(
      y.reshape(over.result(x.shape(), after)),
      [v = x.value(), y, over](const tensor<T>& upstream, grad_sink<T> dx) {
        using A = arithmetic_type<T>;
        const tensor<A> equal = map([](A a, A b) { return a == b ? A(1) : A(0); }, v, y);
        const tensor<A> times = sum(equal, over.axes, reduced_axes::kept);
        dx.map([](A u, A e, A n) { return e == A(0) ? A(0) : u * e / n; },
               upstream.reshape(over.kept), equal, times);
      },
      x);
}

template <typename T, typename A>
[[nodiscard]] tensor<T> in_type(const tensor<A>& x) {
  if constexpr (std::is_same_v<T, A>) return x;
  else return x.template cast<T>();
}
/// x in the type in which its numbers are computed, contiguous.
template <typename T>
[[nodiscard]] tensor<arithmetic_type<T>> in_arithmetic(const tensor<T>& x) {
  if constexpr (is_half<T>) return x.template cast<float>();
  else return x.contiguous();
}

enum class extreme_of { largest, smallest };

/// The index along `axis` of the first largest or smallest element; a NaN is before all.
template <typename T>
[[nodiscard]] tensor<std::int64_t> place_of(extreme_of which, const tensor<T>& x, int axis) {
  using A = arithmetic_type<T>;
  const axis_strides all(x.shape(), axis);
  const tensor<T> input = x.contiguous();
  shape s = x.shape();
  s.erase(resolve_axis(axis, s));
  require(all.extent > 0 || s.size() == 0, "axis {} of a tensor of shape {} has no elements", axis,
          to_string(x.shape()));
  tensor<std::int64_t> result = tensor<std::int64_t>::zeros(s);
  all.for_each_slab([&](std::size_t outer, std::size_t begin, std::size_t end) {
    const T* const from = input.data() + outer * all.slab();
    std::int64_t* const to = result.data() + outer * all.inner;
    if (all.inner == 1 && all.extent > 0) {  // the value first, in lanes
      const auto value = [=](std::size_t k) { return static_cast<A>(from[k]); };
      const A best = which == extreme_of::largest
                         ? reduce_lanes(0, all.extent, value(0), largest_op{}, value)
                         : reduce_lanes(0, all.extent, value(0), smallest_op{}, value);
      std::size_t k = 0;
      while (!(value(k) == best || (value(k) != value(k) && best != best))) ++k;
      *to = static_cast<std::int64_t>(k);
      return;
    }
    if (all.extent == 0) return;
    std::vector<A> best(from + begin, from + end);
    for (std::size_t k = 1; k < all.extent; ++k) {
      for (std::size_t i = begin; i < end; ++i) {
        const A here = from[k * all.inner + i], old = best[i - begin];
        const bool beyond = which == extreme_of::largest ? here > old : here < old;
        const bool takes = beyond | ((here != here) & (old == old));
        best[i - begin] = takes ? here : old;
        to[i] = takes ? static_cast<std::int64_t>(k) : to[i];
      }
    }
  });
  return result;
}

}  // namespace detail

/// The mean squared distance from the mean over some axes, or of all elements where none are given,
/// divided by n - correction in place of n: 1, as PyTorch has it, or 0 for the variance of a
/// population. Of one value NaN, unless the correction is 0.
template <typename T>
[[nodiscard]] variable<T> var(const variable<T>& x, const axis_list& axes = axis_list::all(),
                              double correction = 1, reduced_axes after = reduced_axes::dropped,
                              call_site site = call_site::current()) {
  const detail::reduced over("var", x.value(), axes.of(x.shape()), site);
  return detail::variance_over(x, over, correction, after, site);
}
/// The root of var; its derivative at 0 is 0. torch.std: parx cannot call a function that.
template <typename T>
[[nodiscard]] variable<T> stddev(const variable<T>& x, const axis_list& axes = axis_list::all(),
                                 double correction = 1, reduced_axes after = reduced_axes::dropped,
                                 call_site site = call_site::current()) {
  return detail::element_wise(
      var(x, axes, correction, after, site), detail::saved_value::output,
      [](auto v) { return detail::vector_sqrt(v); },
      [](auto v) {
        const decltype(v) d = 0.5F / v;
        return v == decltype(v){} ? decltype(v){} : d;
      });
}

/// The largest element over some axes (torch.amax); of equal ones each gets the same part of the
/// gradient. Throws usage_error when there is none.
template <typename T>
[[nodiscard]] variable<T> max(const variable<T>& x, std::initializer_list<int> axes,
                              reduced_axes after = reduced_axes::dropped,
                              call_site site = call_site::current()) {
  const detail::reduced over("max", x.value(), detail::listed(axes), site);
  return detail::extreme(
      x, over, after, [&](const tensor<T>& v) { return max(v, axes, reduced_axes::kept, site); });
}
/// The smallest element over some axes (torch.amin); likewise.
template <typename T>
[[nodiscard]] variable<T> min(const variable<T>& x, std::initializer_list<int> axes,
                              reduced_axes after = reduced_axes::dropped,
                              call_site site = call_site::current()) {
  const detail::reduced over("min", x.value(), detail::listed(axes), site);
  return detail::extreme(
      x, over, after, [&](const tensor<T>& v) { return min(v, axes, reduced_axes::kept, site); });
}
/// The largest of all elements, a scalar.
template <detail::tensor_or_variable X>
[[nodiscard]] auto max(const X& x, call_site site = call_site::current()) {
  detail::require_no_cut_logits(x, "max", site);
  return max(detail::in_a_row(x), {0}, reduced_axes::dropped, site);
}
/// The smallest of all elements, a scalar.
template <detail::tensor_or_variable X>
[[nodiscard]] auto min(const X& x, call_site site = call_site::current()) {
  detail::require_no_cut_logits(x, "min", site);
  return min(detail::in_a_row(x), {0}, reduced_axes::dropped, site);
}

/// The index along `axis` of the first largest element; a NaN is larger than all. The axis
/// disappears.
template <typename T>
[[nodiscard]] tensor<std::int64_t> argmax(const tensor<T>& x, int axis,
                                          call_site site = call_site::current()) {
  const detail::reduced over("argmax", x, std::span(&axis, 1), site);
  return detail::place_of(detail::extreme_of::largest, x, axis);
}
/// Of the first smallest element; a NaN is smaller than all.
template <typename T>
[[nodiscard]] tensor<std::int64_t> argmin(const tensor<T>& x, int axis,
                                          call_site site = call_site::current()) {
  const detail::reduced over("argmin", x, std::span(&axis, 1), site);
  return detail::place_of(detail::extreme_of::smallest, x, axis);
}
template <typename T>
[[nodiscard]] tensor<std::int64_t> argmax(const variable<T>& x, int axis,
                                          call_site site = call_site::current()) {
  return argmax(x.value(), axis, site);
}
template <typename T>
[[nodiscard]] tensor<std::int64_t> argmin(const variable<T>& x, int axis,
                                          call_site site = call_site::current()) {
  return argmin(x.value(), axis, site);
}

/// The largest elements along one axis, which disappears, and their indices (torch.max(x, dim)):
/// of equal ones the first, which gets the gradient.
template <detail::tensor_or_variable X>
[[nodiscard]] auto max(const X& x, int axis, call_site site = call_site::current()) {
  return detail::picked(x, axis, argmax(x, axis, site));
}
template <detail::tensor_or_variable X>
[[nodiscard]] auto min(const X& x, int axis, call_site site = call_site::current()) {
  return detail::picked(x, axis, argmin(x, axis, site));
}

/// log(sum(exp(x))) over some axes, without overflow; of nothing -infinity.
template <typename T>
[[nodiscard]] variable<T> logsumexp(const variable<T>& x, const axis_list& axes,
                                    reduced_axes after = reduced_axes::dropped,
                                    call_site site = call_site::current()) {
  const detail::reduced over("logsumexp", x.value(), axes.of(x.shape()), site);
  if constexpr (is_half<T>) {
    return cast<T>(logsumexp(cast<float>(x), axes, after, site));
  } else {
    const auto finite_max = [&] {
      return map([](T m) { return std::isinf(m) ? T(0) : m; },
                 max(x.value(), over.axes, reduced_axes::kept, site));
    };
    const tensor<T> highest = x.size() == 0 ? tensor<T>::zeros(over.kept) : finite_max();
    const auto shifted = [](auto v, auto m) { return detail::vector_exp(v - m); };
    const tensor<T> total =
        sum(map(on_packets(shifted), x.value(), highest), over.axes, reduced_axes::kept, site);
    const tensor<T> y = log(total) + highest;
    return differentiable(
        y.reshape(over.result(x.shape(), after)),
        [y, v = x.value(), kept = over.kept](const tensor<T>& upstream, grad_sink<T> dx) {
          dx.map(on_packets([](auto u, auto a, auto b) {
                   return u * detail::vector_exp<decltype(a)>(a - b);
                 }),
                 upstream.reshape(kept), v, y);
        },
        x);
  }
}

/// (sum |x|^p)^(1/p) over some axes, or of all elements where none are given; p = infinity is the
/// largest |x|, p = 0 the number of elements that are not 0. The derivative where the norm is 0 is
/// 0.
template <typename T>
[[nodiscard]] variable<T> norm(const variable<T>& x, double p = 2,
                               const axis_list& axes = axis_list::all(),
                               reduced_axes after = reduced_axes::dropped,
                               call_site site = call_site::current()) {
  if (axes.is_all() && x.rank() != 1) {
    detail::require_no_cut_logits(x, "norm", site);
    const variable<T> whole = norm(detail::in_a_row(x), p, 0, reduced_axes::dropped, site);
    if (after == reduced_axes::dropped) return whole;
    return reshape(whole, detail::keep_reduced(x.shape(), axes.of(x.shape())), site);
  }
  const detail::reduced over("norm", x.value(), axes.of(x.shape()), site);
  if constexpr (is_half<T>) {
    return cast<T>(norm(cast<float>(x), p, axes, after, site));
  } else {
    require(p >= 0, "norm at {}: p is {}, which is negative", site, p);
    if (std::isinf(p)) {
      return detail::extreme(abs(x), over, after, [&](const tensor<T>& v) {
        return max(v, over.axes, reduced_axes::kept, site);
      });
    }
    if (p == 1) return sum(abs(x), axes, after, site);
    if (p == 0) {
      const tensor<T> counted = map([](T v) { return v == 0 ? T(0) : T(1); }, x.value());
      return variable<T>(sum(counted, over.axes, after, site));
    }
    const tensor<T> powers = p == 2 ? square(x.value()) : pow(abs(x.value()), p);
    const tensor<T> y = pow(sum(powers, over.axes, reduced_axes::kept, site), 1 / p);
    return differentiable(
        y.reshape(over.result(x.shape(), after)),
        [y, p, v = x.value(), kept = over.kept](const tensor<T>& upstream, grad_sink<T> dx) {
          const tensor<T> u = upstream.reshape(kept);
          if (p == 2) {
            dx.map([](T g, T a, T b) { return b == 0 ? T(0) : g * (a / b); }, u, v, y);
          } else {
            dx.map([](T g, T a, T m, T b) { return b == 0 || a == 0 ? T(0) : g * (m / b); }, u, v,
                   sign(v) * pow(abs(v), p - 1), pow(y, p - 1));
          }
        },
        x);
  }
}

/// The product along one axis, which disappears.
template <typename T>
[[nodiscard]] variable<T> prod(const variable<T>& x, int axis,
                               call_site site = call_site::current()) {
  const detail::reduced over("prod", x.value(), std::span(&axis, 1), site);
  using A = arithmetic_type<T>;
  const detail::axis_strides all(x.shape(), axis);
  const tensor<A> v = detail::in_arithmetic(x.value());
  shape s = x.shape();
  s.erase(resolve_axis(axis, s));
  const tensor<A> y = tensor<A>::ones(s);
  all.for_each_slab([&](std::size_t outer, std::size_t begin, std::size_t end) {
    A* const to = y.data() + outer * all.inner;
    if (all.inner == 1) {
      const A* const from = v.data() + outer * all.extent;
      const auto times = [](auto a, auto b) { return a * b; };
      *to = reduce_lanes(0, all.extent, A(1), times, adjacent<A>{from});
      return;
    }
    for (std::size_t k = 0; k < all.extent; ++k) {
      const A* const from = v.data() + outer * all.slab() + k * all.inner;
      for (std::size_t i = begin; i < end; ++i) to[i] *= from[i];
    }
  });
  return differentiable(
      detail::in_type<T>(y),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        // The product of the others: of those before times those after. Zeros do not matter.
        const tensor<A> others = tensor<A>::empty(v.shape());
        all.for_each_slab([&](std::size_t outer, std::size_t begin, std::size_t end) {
          for (std::size_t i = begin; i < end; ++i) {
            const A* const from = v.data() + outer * all.slab() + i;
            A* const to = others.data() + outer * all.slab() + i;
            A before = static_cast<A>(upstream.data()[outer * all.inner + i]), after = 1;
            for (std::size_t k = 0; k < all.extent; ++k) {
              to[k * all.inner] = before;
              before *= from[k * all.inner];
            }
            for (std::size_t k = all.extent; k-- > 0;) {
              to[k * all.inner] *= after;
              after *= from[k * all.inner];
            }
          }
        });
        dx.map([](A g) { return g; }, others);
      },
      x);
}

namespace detail {

enum class direction { forward, backward };

/// The sums of the elements up to each, or from each on, along an axis; one after another.
template <typename T>
[[nodiscard]] tensor<T> running_sums(const tensor<T>& x, int axis, direction which) {
  using A = arithmetic_type<T>;
  const axis_strides all(x.shape(), axis);
  const tensor<T> input = x.contiguous();
  tensor<T> y = tensor<T>::empty(x.shape());
  all.for_each_slab([&](std::size_t outer, std::size_t begin, std::size_t end) {
    if (all.inner == 1) {
      const T* const from = input.data() + outer * all.extent;
      T* const to = y.data() + outer * all.extent;
      A sum = 0;
      for (std::size_t step = 0; step < all.extent; ++step) {
        const std::size_t k = which == direction::forward ? step : all.extent - 1 - step;
        sum += static_cast<A>(from[k]);
        to[k] = static_cast<T>(sum);
      }
      return;
    }
    std::vector<A> sums(end - begin);
    for (std::size_t step = 0; step < all.extent; ++step) {
      const std::size_t k = which == direction::forward ? step : all.extent - 1 - step;
      const std::size_t at = outer * all.slab() + k * all.inner + begin;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] += static_cast<A>(input.data()[at + i]);
        y.data()[at + i] = static_cast<T>(sums[i]);
      }
    }
  });
  return y;
}

}  // namespace detail

/// Element k of `axis` is the sum of the elements 0 ... k of x, added in this order.
template <typename T>
[[nodiscard]] tensor<T> cumsum(const tensor<T>& x, int axis,
                               call_site site = call_site::current()) {
  const detail::reduced over("cumsum", x, std::span(&axis, 1), site);
  return detail::running_sums(x, axis, detail::direction::forward);
}
template <typename T>
[[nodiscard]] variable<T> cumsum(const variable<T>& x, int axis,
                                 call_site site = call_site::current()) {
  return differentiable(
      cumsum(x.value(), axis, site),
      [axis](const tensor<T>& upstream, grad_sink<T> dx) {
        dx.add(detail::running_sums(upstream, axis, detail::direction::backward));
      },
      x);
}

/// Of a tensor: the mean over `axes`.
template <typename T>
[[nodiscard]] tensor<T> mean(const tensor<T>& x, const axis_list& axes = axis_list::all(),
                             reduced_axes after = reduced_axes::dropped,
                             call_site site = call_site::current()) {
  return mean(variable<T>(x), axes, after, site).value();
}
template <typename T>
[[nodiscard]] tensor<T> var(const tensor<T>& x, const axis_list& axes = axis_list::all(),
                            double correction = 1, reduced_axes after = reduced_axes::dropped,
                            call_site site = call_site::current()) {
  return var(variable<T>(x), axes, correction, after, site).value();
}
/// Of a tensor: the standard deviation over `axes`.
template <typename T>
[[nodiscard]] tensor<T> stddev(const tensor<T>& x, const axis_list& axes = axis_list::all(),
                               double correction = 1, reduced_axes after = reduced_axes::dropped,
                               call_site site = call_site::current()) {
  return stddev(variable<T>(x), axes, correction, after, site).value();
}
/// Of a tensor: log(sum(e^x)) over `axes`, without overflow.
template <typename T>
[[nodiscard]] tensor<T> logsumexp(const tensor<T>& x, const axis_list& axes,
                                  reduced_axes after = reduced_axes::dropped,
                                  call_site site = call_site::current()) {
  return logsumexp(variable<T>(x), axes, after, site).value();
}
/// Of a tensor: the p-norm.
template <typename T>
[[nodiscard]] tensor<T> norm(const tensor<T>& x, double p = 2,
                             const axis_list& axes = axis_list::all(),
                             reduced_axes after = reduced_axes::dropped,
                             call_site site = call_site::current()) {
  return norm(variable<T>(x), p, axes, after, site).value();
}
/// Of a tensor: the product over an axis.
template <typename T>
[[nodiscard]] tensor<T> prod(const tensor<T>& x, int axis, call_site site = call_site::current()) {
  return prod(variable<T>(x), axis, site).value();
}
/// Whether any element is true.
[[nodiscard]] inline bool any(const tensor<bool>& mask) {
  const tensor<bool> all = mask.contiguous();
  return std::find(all.begin(), all.end(), true) != all.end();
}
/// Whether all elements are true; of none they are.
[[nodiscard]] inline bool all(const tensor<bool>& mask) {
  const tensor<bool> each = mask.contiguous();
  return std::find(each.begin(), each.end(), false) == each.end();
}
/// How many elements are true.
[[nodiscard]] inline std::size_t count_nonzero(const tensor<bool>& mask) {
  const tensor<bool> each = mask.contiguous();
  return static_cast<std::size_t>(std::count(each.begin(), each.end(), true));
}

}  // namespace parx
