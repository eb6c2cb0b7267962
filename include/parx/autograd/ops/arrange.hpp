// concat and stack, split, chunk, unbind, expand, repeat, repeat_interleave, flip, roll, pad, triu,
// tril and movedim, of tensors and variables: elements in other places.
//
// X is a tensor or a variable. split, chunk, unbind, expand and movedim are views; the others copy.
// All throw usage_error for shapes that do not fit, and for logits that are cut over ranks where
// they copy (naming parx::whole).
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/concat.hpp>
#include <parx/autograd/ops/detail/axis_strides.hpp>
#include <parx/autograd/ops/detail/kinds.hpp>
#include <parx/autograd/ops/index.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

/// See concat of variables.
template <typename T>
[[nodiscard]] tensor<T> concat(std::span<const tensor<T>> parts, int axis = 0,
                               call_site = call_site::current()) {
  const std::vector<variable<T>> constants(parts.begin(), parts.end());
  return concat(std::span<const variable<T>>(constants), axis).value();
}
template <typename T>
[[nodiscard]] tensor<T> concat(std::initializer_list<tensor<T>> parts, int axis = 0,
                               call_site = call_site::current()) {
  return concat(std::span<const tensor<T>>(parts.begin(), parts.size()), axis);
}
template <detail::tensor_or_variable X>
[[nodiscard]] auto concat(const std::vector<X>& parts, int axis = 0,
                          call_site = call_site::current()) {
  return concat(std::span<const X>(parts), axis);
}

/// Parts of one shape side by side, along a new axis.
template <detail::tensor_or_variable X>
[[nodiscard]] auto stack(std::span<const X> parts, int axis = 0, call_site = call_site::current()) {
  require(!parts.empty(), "stack needs at least one part");
  shape s = parts[0].shape();
  const int count = static_cast<int>(s.rank()) + 1, at = axis < 0 ? axis + count : axis;
  require(at >= 0 && at < count, "stack: axis {} of parts of shape {}", axis, to_string(s));
  s.insert(static_cast<std::size_t>(at), 1);
  std::vector<X> reshaped;
  for (const X& part : parts) {
    require(part.shape() == parts[0].shape(), "stack: parts of shapes {} and {}",
            to_string(parts[0].shape()), to_string(part.shape()));
    reshaped.push_back(detail::in_shape(part, s));
  }
  return concat(std::span<const X>(reshaped), at);
}
template <detail::tensor_or_variable X>
[[nodiscard]] auto stack(const std::vector<X>& parts, int axis = 0,
                         call_site = call_site::current()) {
  return stack(std::span<const X>(parts), axis);
}
template <detail::tensor_or_variable X>
[[nodiscard]] auto stack(std::initializer_list<X> parts, int axis = 0,
                         call_site = call_site::current()) {
  return stack(std::span<const X>(parts.begin(), parts.size()), axis);
}

namespace detail {

template <typename T>
[[nodiscard]] tensor<T> part_of(const tensor<T>& x, int axis, std::size_t begin, std::size_t end) {
  return x.slice(axis, begin, end);
}
template <typename T>
[[nodiscard]] variable<T> part_of(const variable<T>& x, int axis, std::size_t begin,
                                  std::size_t end) {
  return slice(x, axis, begin, end);
}

}  // namespace detail

/// Views of `size` indices each of an axis, the last perhaps of fewer.
template <detail::tensor_or_variable X>
[[nodiscard]] auto split(const X& x, std::size_t size, int axis = 0,
                         call_site = call_site::current()) {
  const std::size_t extent = x.shape()[resolve_axis(axis, x.shape())];
  require(size > 0, "split: parts of 0 indices");
  std::vector<decltype(detail::part_of(x, axis, 0, 0))> parts;
  for (std::size_t begin = 0; begin < extent || parts.empty(); begin += size) {
    parts.push_back(detail::part_of(x, axis, begin, std::min(begin + size, extent)));
  }
  return parts;
}
/// Views of these numbers of indices, which add up to the extent.
template <detail::tensor_or_variable X>
[[nodiscard]] auto split(const X& x, std::span<const std::size_t> sizes, int axis = 0,
                         call_site = call_site::current()) {
  const std::size_t extent = x.shape()[resolve_axis(axis, x.shape())];
  std::vector<decltype(detail::part_of(x, axis, 0, 0))> parts;
  std::size_t begin = 0;
  for (const std::size_t size : sizes) {
    require(size <= extent - begin, "split: parts of more than the {} indices of axis {}", extent,
            axis);
    parts.push_back(detail::part_of(x, axis, begin, begin + size));
    begin += size;
  }
  require(begin == extent, "split: parts of {} indices of an axis of {}", begin, extent);
  return parts;
}
/// `count` views of an axis, or fewer, all of the same extent but the last, as in PyTorch.
template <detail::tensor_or_variable X>
[[nodiscard]] auto chunk(const X& x, std::size_t count, int axis = 0,
                         call_site = call_site::current()) {
  require(count > 0, "chunk: into 0 parts");
  const std::size_t extent = x.shape()[resolve_axis(axis, x.shape())];
  return split(x, std::max<std::size_t>((extent + count - 1) / count, 1), axis);
}
/// Each index of an axis, which disappears.
template <detail::tensor_or_variable X>
[[nodiscard]] auto unbind(const X& x, int axis = 0, call_site = call_site::current()) {
  const std::size_t extent = x.shape()[resolve_axis(axis, x.shape())];
  std::vector<decltype(detail::part_of(x, axis, 0, 0))> parts;
  for (std::size_t i = 0; i < extent; ++i) {
    parts.push_back(detail::without_axis(detail::part_of(x, axis, i, i + 1), axis));
  }
  return parts;
}

/// A view with axes of extent 1 repeated, and axes in front: see tensor::expand.
template <typename T>
[[nodiscard]] variable<T> expand(const variable<T>& x, const shape& to,
                                 call_site = call_site::current()) {
  return differentiable(
      x.value().expand(to),
      [](const tensor<T>& upstream, grad_sink<T> dx) { dx.add_broadcast(upstream); }, x);
}

/// A view in which axis `from` is axis `to`.
template <detail::tensor_or_variable X>
[[nodiscard]] auto movedim(const X& x, int from, int to, call_site = call_site::current()) {
  const std::size_t rank = x.shape().rank(), source = resolve_axis(from, x.shape()),
                    target = resolve_axis(to, x.shape());
  std::vector<int> order;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (axis != source) order.push_back(static_cast<int>(axis));
  }
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(target), static_cast<int>(source));
  if constexpr (requires { x.value(); }) return permute(x, std::span<const int>(order));
  else return x.permute(std::span<const int>(order));
}

namespace detail {

/// x with place(k) of an axis in place k of `extent`, for each axis and extent of `sizes`.
template <tensor_or_variable X, typename Place>
[[nodiscard]] auto taken_by(std::string_view call, const X& x, int axis, std::size_t extent,
                            const Place& place) {
  element_places from(extent);
  for (std::size_t k = 0; k < extent; ++k) from[k] = place(k);
  return taken(call, x, axis, std::move(from));
}
template <tensor_or_variable X>
using kind_of = std::remove_cvref_t<decltype(in_a_row(std::declval<const X&>()))>;

}  // namespace detail

/// x, times[i] copies one after another along axis i; further numbers in front add axes.
template <detail::tensor_or_variable X>
[[nodiscard]] auto repeat(const X& x, std::initializer_list<std::size_t> times,
                          call_site = call_site::current()) {
  require(times.size() >= x.shape().rank(), "repeat: {} numbers for a tensor of shape {}",
          times.size(), to_string(x.shape()));
  shape s = x.shape();
  while (s.rank() < times.size()) s.insert(0, 1);
  detail::kind_of<X> y = detail::in_shape(x, s);
  for (std::size_t axis = times.size(); axis-- > 0;) {
    const std::size_t number = times.begin()[axis], extent = s[axis];
    if (number == 1) continue;
    y = detail::taken_by("repeat", y, static_cast<int>(axis), number * extent,
                         [=](std::size_t k) { return k % extent; });
  }
  return y;
}
/// Each index of an axis `times` times.
template <detail::tensor_or_variable X>
[[nodiscard]] auto repeat_interleave(const X& x, std::size_t times, int axis,
                                     call_site = call_site::current()) {
  const std::size_t extent = x.shape()[resolve_axis(axis, x.shape())];
  return detail::taken_by("repeat_interleave", x, axis, times * extent,
                          [=](std::size_t k) { return k / times; });
}
/// The indices of these axes in the opposite order.
template <detail::tensor_or_variable X>
[[nodiscard]] auto flip(const X& x, const axis_list& axes, call_site = call_site::current()) {
  detail::kind_of<X> y = x;
  for (const int axis : axes.of(x.shape())) {
    const std::size_t extent = x.shape()[resolve_axis(axis, x.shape())];
    y = detail::taken_by("flip", y, axis, extent, [=](std::size_t k) { return extent - 1 - k; });
  }
  return y;
}
/// Index k of an axis is now index k + shift; what leaves at one end comes in at the other.
template <detail::tensor_or_variable X>
[[nodiscard]] auto roll(const X& x, std::ptrdiff_t shift, int axis,
                        call_site = call_site::current()) {
  const auto extent = static_cast<std::ptrdiff_t>(x.shape()[resolve_axis(axis, x.shape())]);
  const std::ptrdiff_t back = extent == 0 ? 0 : (extent - shift % extent) % extent;
  return detail::taken_by("roll", x, axis, static_cast<std::size_t>(extent), [=](std::size_t k) {
    return static_cast<std::size_t>((static_cast<std::ptrdiff_t>(k) + back) % extent);
  });
}

enum class pad_mode {
  constant,   ///< `value`
  reflect,    ///< mirrored at the first and last element, which are not repeated
  replicate,  ///< the first and last element again
  circular,   ///< the other end
};

namespace detail {

template <typename T>
[[nodiscard]] tensor<T> padded(const tensor<T>& x, int axis, std::size_t before, std::size_t after,
                               T value) {
  require_uncut(x, "pad");
  shape s = x.shape();
  std::size_t& extent = s[resolve_axis(axis, s)];
  const std::size_t end = before + extent;
  extent = end + after;
  tensor<T> y = tensor<T>::empty(s);
  y.slice(axis, 0, before).fill(value);
  y.slice(axis, end, end + after).fill(value);
  y.slice(axis, before, end).copy_from(x);
  return y;
}
template <typename T>
[[nodiscard]] variable<T> padded(const variable<T>& x, int axis, std::size_t before,
                                 std::size_t after, T value) {
  return differentiable(
      padded(x.value(), axis, before, after, value),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        const std::size_t extent = upstream.extent(axis);
        dx.add(upstream.slice(axis, before, extent - after));
      },
      x);
}

/// The index of an axis of `extent` that is at k of the padded one.
[[nodiscard]] inline std::size_t mirrored_place(std::size_t k, std::size_t before,
                                                std::size_t extent, pad_mode mode) {
  if (k >= before && k < before + extent) return k - before;
  const std::size_t outside = k < before ? before - k : k - before - extent + 1;
  switch (mode) {
    case pad_mode::reflect:
      return k < before ? outside : extent - 1 - outside;
    case pad_mode::circular:
      return k < before ? extent - outside : outside - 1;
    default:
      return k < before ? 0 : extent - 1;
  }
}

}  // namespace detail

/// x with elements before and after it: {left, right, top, bottom, ...}, from the last axis on, as
/// in PyTorch. Throws usage_error for a border that the mode cannot fill.
template <detail::tensor_or_variable X>
[[nodiscard]] auto pad(const X& x, std::initializer_list<std::size_t> sizes,
                       pad_mode mode = pad_mode::constant, double value = 0,
                       call_site = call_site::current()) {
  require(sizes.size() % 2 == 0 && sizes.size() <= 2 * x.shape().rank(),
          "pad: {} sizes for a tensor of shape {}: two for each axis, from the last on",
          sizes.size(), to_string(x.shape()));
  detail::kind_of<X> y = x;
  using T = typename detail::kind_of<X>::value_type;
  for (std::size_t i = 0; i < sizes.size(); i += 2) {
    const int axis = -1 - static_cast<int>(i / 2);
    const std::size_t before = sizes.begin()[i], after = sizes.begin()[i + 1],
                      extent = y.extent(axis);
    if (before == 0 && after == 0) continue;
    if (mode == pad_mode::constant) {
      y = detail::padded(y, axis, before, after, static_cast<T>(value));
      continue;
    }
    const std::size_t most = mode == pad_mode::reflect ? extent - std::min<std::size_t>(extent, 1)
                             : mode == pad_mode::circular ? extent
                             : extent > 0                 ? std::max(before, after)
                                                          : 0;
    require(std::max(before, after) <= most,
            "pad: borders of {} and {} elements around an axis of extent {}", before, after,
            extent);
    y = detail::taken_by("pad", y, axis, before + extent + after, [=](std::size_t k) {
      return detail::mirrored_place(k, before, extent, mode);
    });
  }
  return y;
}

namespace detail {

enum class triangle { upper, lower };

/// The elements of the last two axes with column - row >= diagonal (upper) or <= it; others are 0.
template <typename T>
[[nodiscard]] tensor<T> triangle_of(const tensor<T>& x, triangle which, std::ptrdiff_t diagonal) {
  require_uncut(x, which == triangle::upper ? "triu" : "tril");
  require(x.rank() >= 2, "triu and tril are of matrices (..., rows, columns), not of shape {}",
          to_string(x.shape()));
  tensor<T> y = x.contiguous().clone();
  const std::size_t rows = y.extent(-2), columns = y.extent(-1);
  const auto width = static_cast<std::ptrdiff_t>(columns);
  const std::size_t lines = columns == 0 ? 0 : y.size() / columns;
  parallel_for(lines, rows_of_a_block(columns), [&](std::size_t line, std::size_t last) {
    for (; line < last; ++line) {
      T* const row = y.data() + line * columns;
      const auto first = static_cast<std::ptrdiff_t>(line % rows) + diagonal;  // on the diagonal
      if (which == triangle::upper) {
        std::fill(row, row + std::clamp<std::ptrdiff_t>(first, 0, width), T(0));
      } else {
        std::fill(row + std::clamp<std::ptrdiff_t>(first + 1, 0, width), row + width, T(0));
      }
    }
  });
  return y;
}
template <typename T>
[[nodiscard]] variable<T> triangle_of(const variable<T>& x, triangle which,
                                      std::ptrdiff_t diagonal) {
  return differentiable(
      triangle_of(x.value(), which, diagonal),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        dx.add(triangle_of(upstream, which, diagonal));
      },
      x);
}

}  // namespace detail

/// The upper triangle of matrices (..., rows, columns): 0 below the diagonal, or below the one that
/// is `diagonal` columns to the right.
template <detail::tensor_or_variable X>
[[nodiscard]] auto triu(const X& x, std::ptrdiff_t diagonal = 0, call_site = call_site::current()) {
  return detail::triangle_of(x, detail::triangle::upper, diagonal);
}
/// The lower triangle: 0 above the diagonal.
template <detail::tensor_or_variable X>
[[nodiscard]] auto tril(const X& x, std::ptrdiff_t diagonal = 0, call_site = call_site::current()) {
  return detail::triangle_of(x, detail::triangle::lower, diagonal);
}

}  // namespace parx
