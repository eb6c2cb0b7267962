// gather, scatter, scatter_add, index_select, index_add, masked_select, one_hot, sort, argsort and
// topk, of tensors and variables.
//
// Indices are tensors of integers, counted from 0. Where several values go to one place they are
// added in the order in which they lie along the axis. All throw usage_error for shapes that do not
// fit, for an index outside (with its value), and for logits that are cut over ranks, naming
// parx::full_logits.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/axis_strides.hpp>
#include <parx/autograd/ops/detail/element_wise.hpp>
#include <parx/autograd/ops/detail/kinds.hpp>
#include <parx/autograd/ops/rows.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename Index>
[[noreturn, gnu::noinline]] void refuse_index(std::string_view call, Index index,
                                              std::size_t extent) {
  throw_usage("{}: index {} is outside an axis of extent {}", call, index, extent);
}
/// An index as a place below `extent`.
template <typename Index>
[[nodiscard]] std::size_t checked_place(std::string_view call, Index index, std::size_t extent) {
  const auto place = static_cast<std::size_t>(index);  // a negative index becomes huge
  if (place >= extent) [[unlikely]]
    refuse_index(call, index, extent);
  return place;
}

/// The part of x with the extents of `index` on all axes but `axis`. Throws where that has more.
template <typename T>
[[nodiscard]] tensor<T> narrowed(std::string_view call, const tensor<T>& x, int axis,
                                 const shape& index) {
  require_uncut(x, call);
  const std::size_t along = resolve_axis(axis, x.shape());
  bool fits = index.rank() == x.rank();
  for (std::size_t i = 0; fits && i < index.rank(); ++i)
    fits = i == along || index[i] <= x.shape()[i];
  require(fits,
          "{}: an index of shape {} for a tensor of shape {} along axis {}: it has as many "
          "axes, and no larger extents on the others",
          call, to_string(index), to_string(x.shape()), axis);
  tensor<T> part = x;
  for (std::size_t i = 0; i < index.rank(); ++i) {
    if (i != along && index[i] < x.shape()[i]) part = part.slice(static_cast<int>(i), 0, index[i]);
  }
  return part;
}

/// visit(place in the tensor of `extent`, place in the index), of contiguous tensors, in the order
/// of the axis where the place in the tensor is the same.
template <typename Index, typename Visit>
void each_indexed(std::string_view call, const tensor<Index>& index, int axis, std::size_t extent,
                  const Visit& visit) {
  const axis_strides at(index.shape(), axis);
  const Index* const all = index.data();
  at.for_each_slab([&, all](std::size_t outer, std::size_t begin, std::size_t end) {
    const std::size_t first = outer * extent * at.inner, inner = at.inner;
    for (std::size_t k = 0; k < at.extent; ++k) {
      const std::size_t row = outer * at.slab() + k * inner;
      for (std::size_t i = begin; i < end; ++i) {
        visit(first + checked_place(call, all[row + i], extent) * inner + i, row + i);
      }
    }
  });
}

template <typename T, typename Index>
[[nodiscard]] tensor<T> gathered(std::string_view call, const tensor<T>& x, int axis,
                                 const tensor<Index>& index) {
  const tensor<T> part = narrowed(call, x, axis, index.shape()).contiguous();
  const tensor<Index> at = index.contiguous();
  tensor<T> y = tensor<T>::empty(index.shape());
  each_indexed(call, at, axis, x.extent(axis),
               [&](std::size_t from, std::size_t to) { y.data()[to] = part.data()[from]; });
  return y;
}

/// target[..., index, ...] = f(target[..., index, ...], source): target is not contiguous perhaps.
template <typename T, typename Index, typename Function>
void scatter_into(std::string_view call, const tensor<T>& target, int axis,
                  const tensor<Index>& index, const tensor<T>& source, Function f) {
  require(source.shape() == index.shape(), "{}: an index of shape {} for values of shape {}", call,
          to_string(index.shape()), to_string(source.shape()));
  const tensor<T> part = narrowed(call, target, axis, index.shape());
  const tensor<T> sums = part.contiguous(), values = source.contiguous();
  each_indexed(call, index.contiguous(), axis, target.extent(axis),
               [f, sum = sums.data(), value = values.data()](std::size_t to, std::size_t from) {
                 sum[to] = f(sum[to], value[from]);
               });
  if (!part.is_contiguous()) part.copy_from(sums);
}

struct keep_second {
  template <typename T>
  [[nodiscard]] T operator()(T, T b) const noexcept {
    return b;
  }
};

/// `y`, which was gathered from x, as a variable.
template <typename T, typename Index>
[[nodiscard]] variable<T> with_gathered_gradient(std::string_view call, const variable<T>& x,
                                                 tensor<T> y, int axis,
                                                 const tensor<Index>& index) {
  return differentiable(
      std::move(y),
      [call, axis, index](const tensor<T>& upstream, grad_sink<T> dx) {
        scatter_into(call, dx.zeroed(), axis, index, upstream.reshape(index.shape()), add_op{});
      },
      x);
}

}  // namespace detail

/// result[i][j] = x[index[i][j]][j] for axis 0, x[i][index[i][j]] for axis 1; likewise for more
/// axes. On the other axes the index may have smaller extents than x.
template <typename T, std::integral Index>
[[nodiscard]] tensor<T> gather(const tensor<T>& x, int axis, const tensor<Index>& index,
                               call_site = call_site::current()) {
  return detail::gathered("gather", x, axis, index);
}
template <typename T, std::integral Index>
[[nodiscard]] variable<T> gather(const variable<T>& x, int axis, const tensor<Index>& index,
                                 call_site = call_site::current()) {
  return detail::with_gathered_gradient("gather", x, gather(x.value(), axis, index), axis, index);
}

/// x with source[i][j] added at [index[i][j]][j] for axis 0, likewise for others: the inverse of
/// gather. index and source have one shape.
template <typename T, std::integral Index>
[[nodiscard]] tensor<T> scatter_add(const tensor<T>& x, int axis, const tensor<Index>& index,
                                    const tensor<T>& source, call_site = call_site::current()) {
  tensor<T> y = x.clone();
  detail::scatter_into("scatter_add", y, axis, index, source, add_op{});
  return y;
}
template <typename T, std::integral Index>
[[nodiscard]] variable<T> scatter_add(const variable<T>& x, int axis, const tensor<Index>& index,
                                      const std::type_identity_t<variable<T>>& source,
                                      call_site = call_site::current()) {
  return differentiable(
      scatter_add(x.value(), axis, index, source.value()),
      [axis, index](const tensor<T>& upstream, grad_sink<T> dx, grad_sink<T> dsource) {
        if (dx.needed()) dx.add(upstream);
        if (dsource.needed()) dsource.add(gather(upstream, axis, index));
      },
      x, source);
}

/// x with source[i][j] in place of the element at [index[i][j]][j]; the last of several stays.
/// Only without repeated places are its gradients right, as in PyTorch.
template <typename T, std::integral Index>
[[nodiscard]] tensor<T> scatter(const tensor<T>& x, int axis, const tensor<Index>& index,
                                const tensor<T>& source, call_site = call_site::current()) {
  tensor<T> y = x.clone();
  detail::scatter_into("scatter", y, axis, index, source, detail::keep_second{});
  return y;
}
template <typename T, std::integral Index>
[[nodiscard]] variable<T> scatter(const variable<T>& x, int axis, const tensor<Index>& index,
                                  const std::type_identity_t<variable<T>>& source,
                                  call_site = call_site::current()) {
  return differentiable(
      scatter(x.value(), axis, index, source.value()),
      [axis, index](const tensor<T>& upstream, grad_sink<T> dx, grad_sink<T> dsource) {
        if (dx.needed()) dx.add(scatter(upstream, axis, index, tensor<T>::zeros(index.shape())));
        if (dsource.needed()) dsource.add(gather(upstream, axis, index));
      },
      x, source);
}

namespace detail {

using element_places = std::vector<std::size_t>;

template <typename Index>
[[nodiscard]] element_places places_of(std::string_view call, const tensor<Index>& index,
                                       std::size_t extent) {
  require(index.rank() == 1, "{}: the index has one axis, not shape {}", call,
          to_string(index.shape()));
  element_places result;
  for (const Index each : index.contiguous()) {
    result.push_back(checked_place(call, each, extent));
  }
  return result;
}

/// Index k of `axis` of the result is index from[k] of x.
template <typename T>
[[nodiscard]] tensor<T> taken(std::string_view call, const tensor<T>& x, int axis,
                              const element_places& from) {
  require_uncut(x, call);
  const axis_strides all(x.shape(), axis);
  const tensor<T> input = x.contiguous();
  shape s = x.shape();
  s[resolve_axis(axis, s)] = from.size();
  tensor<T> y = tensor<T>::empty(s);
  const axis_strides picked(s, axis);
  // Neighbours that stay neighbours are copied together.
  std::vector<std::size_t> begin;
  for (std::size_t k = 0; k < from.size(); ++k) {
    if (k == 0 || from[k] != from[k - 1] + 1) begin.push_back(k);
  }
  const std::size_t runs = begin.size(), inner = all.inner;
  begin.push_back(from.size());
  const T* const source = input.data();
  T* const target = y.data();
  if (inner == 1 && runs > from.size() / 4) {
    for_each_row(all.outer, from.size(), [&, source, target](std::size_t o) {
      const T* const line = source + o * all.extent;
      T* const to = target + o * picked.extent;
      for (std::size_t k = 0; k < from.size(); ++k) to[k] = line[from[k]];
    });
  } else {
    for_each_row(all.outer * runs, picked.slab() / std::max<std::size_t>(runs, 1),
                 [&, source, target](std::size_t number) {
                   const std::size_t o = number / runs, k = begin[number % runs];
                   std::copy_n(source + o * all.slab() + from[k] * inner,
                               (begin[number % runs + 1] - k) * inner,
                               target + o * picked.slab() + k * inner);
                 });
  }
  return y;
}
/// Adds index k of `source` to index to[k] of the contiguous `target`.
template <typename T>
void add_taken(const tensor<T>& target, int axis, const element_places& to,
               const tensor<T>& source) {
  const axis_strides all(target.shape(), axis);
  const tensor<T> values = source.contiguous();
  const axis_strides picked(source.shape(), axis);
  picked.for_each_slab([&](std::size_t outer, std::size_t begin, std::size_t end) {
    for (std::size_t k = 0; k < to.size(); ++k) {
      const T* const from = values.data() + outer * picked.slab() + k * picked.inner;
      T* const sum = target.data() + outer * all.slab() + to[k] * all.inner;
      for (std::size_t i = begin; i < end; ++i) sum[i] = static_cast<T>(sum[i] + from[i]);
    }
  });
}
template <typename T>
[[nodiscard]] variable<T> taken(std::string_view call, const variable<T>& x, int axis,
                                element_places from) {
  tensor<T> y = taken(call, x.value(), axis, from);
  return differentiable(
      std::move(y),
      [axis, from = std::move(from)](const tensor<T>& upstream, grad_sink<T> dx) {
        add_taken(dx.zeroed(), axis, from, upstream);
      },
      x);
}

}  // namespace detail

/// The indices `index` (n) of an axis, in this order, perhaps several times. X is a tensor or a
/// variable.
template <detail::tensor_or_variable X, std::integral Index>
[[nodiscard]] auto index_select(const X& x, int axis, const tensor<Index>& index,
                                call_site = call_site::current()) {
  const std::size_t extent = x.shape()[resolve_axis(axis, x.shape())];
  return detail::taken("index_select", x, axis, detail::places_of("index_select", index, extent));
}

/// x with index k of `source`'s axis added to index index[k] of its own.
template <typename T, std::integral Index>
[[nodiscard]] tensor<T> index_add(const tensor<T>& x, int axis, const tensor<Index>& index,
                                  const tensor<T>& source, call_site = call_site::current()) {
  detail::require_uncut(x, "index_add");
  shape s = x.shape();
  s[resolve_axis(axis, s)] = index.size();
  require(source.shape() == s, "index_add: values of shape {} in place of {}",
          to_string(source.shape()), to_string(s));
  tensor<T> y = x.contiguous().clone();
  detail::add_taken(y, axis, detail::places_of("index_add", index, x.extent(axis)), source);
  return y;
}
template <typename T, std::integral Index>
[[nodiscard]] variable<T> index_add(const variable<T>& x, int axis, const tensor<Index>& index,
                                    const std::type_identity_t<variable<T>>& source,
                                    call_site = call_site::current()) {
  return differentiable(
      index_add(x.value(), axis, index, source.value()),
      [axis, index](const tensor<T>& upstream, grad_sink<T> dx, grad_sink<T> dsource) {
        if (dx.needed()) dx.add(upstream);
        if (dsource.needed()) dsource.add(index_select(upstream, axis, index));
      },
      x, source);
}

/// The elements of x where `mask`, of the same shape, is true, as one axis in row-major order.
template <detail::tensor_or_variable X>
[[nodiscard]] auto masked_select(const X& x, const tensor<bool>& mask,
                                 call_site = call_site::current()) {
  require(mask.shape() == x.shape(), "masked_select: a mask of shape {} for a tensor of shape {}",
          to_string(mask.shape()), to_string(x.shape()));
  const tensor<bool> all = mask.contiguous();
  detail::element_places from(all.size() + 1);
  std::size_t count = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {  // without a branch, which random masks make slow
    from[count] = i;
    count += static_cast<std::size_t>(all.data()[i]);
  }
  from.resize(count);
  return detail::taken("masked_select", detail::in_a_row(x), 0, std::move(from));
}

/// Rows of 0 with a 1 at each number: (...) becomes (..., classes).
template <typename T = float, std::integral Index>
[[nodiscard]] tensor<T> one_hot(const tensor<Index>& numbers, std::size_t classes,
                                call_site = call_site::current()) {
  shape s = numbers.shape();
  s.push_back(classes);
  tensor<T> y = tensor<T>::zeros(s);
  const tensor<Index> all = numbers.contiguous();
  for (std::size_t i = 0; i < all.size(); ++i) {
    y.data()[i * classes + detail::checked_place("one_hot", all.data()[i], classes)] = T(1);
  }
  return y;
}

/// Elements along an axis, and where they were.
template <typename X>
struct indexed_values {
  X values;
  tensor<std::int64_t> indices;
};

namespace detail {

/// The elements of x at `index`, one for each line along `axis`, which disappears.
template <tensor_or_variable X>
[[nodiscard]] auto picked(const X& x, int axis, const tensor<std::int64_t>& index) {
  const auto along = static_cast<int>(resolve_axis(axis, x.shape()));
  auto values = without_axis(gather(x, axis, index.unsqueeze(along)), along);
  return indexed_values<decltype(values)>{std::move(values), index};
}

}  // namespace detail

/// In both a NaN counts as the largest number.
enum class sort_order { ascending, descending };

namespace detail {

/// A number whose order among others is that of x: NaN last, 0 and -0 equal.
template <typename A>
[[nodiscard]] simd::word_of<A> sort_key(A x, sort_order order) noexcept {
  using word = simd::word_of<A>;
  constexpr word sign = word{1} << (8 * sizeof(A) - 1);
  if constexpr (std::is_integral_v<A>) {
    const word number = std::bit_cast<word>(x) ^ sign;
    return order == sort_order::ascending ? number : ~number;
  } else {
    const auto bits = std::bit_cast<word>(x == 0 ? A(0) : x);
    const word key = x != x ? ~word{0} : (bits & sign) != 0 ? ~bits : bits | sign;
    return order == sort_order::ascending ? key : ~key;
  }
}

/// The indices of the first `count` elements of each line in this order, of equal ones the first.
template <typename T>
[[nodiscard]] tensor<std::int64_t> sorted_places(const tensor<T>& x, int axis, sort_order order,
                                                 std::size_t count) {
  using A = std::conditional_t<std::is_integral_v<T>, std::int64_t, arithmetic_type<T>>;
  using element = std::pair<simd::word_of<A>, std::uint32_t>;  // a float's as one number
  const tensor<T> lines = x.transpose(axis, -1).contiguous();
  shape s = lines.shape();
  const std::size_t width = s.back();
  require(width < std::size_t{1} << 32U, "sort: an axis of {} elements", width);
  s[s.rank() - 1] = count;
  const tensor<std::int64_t> result = tensor<std::int64_t>::empty(s);
  const auto arrange = [count](auto& all) {
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(count);
    if (end != all.end()) std::nth_element(all.begin(), end, all.end());
    std::sort(all.begin(), end);
  };
  const std::size_t number = width == 0 ? 0 : lines.size() / width;
  parallel_for(number, rows_of_a_block(16 * width), [&](std::size_t line, std::size_t last) {
    std::vector<std::conditional_t<sizeof(A) == 4, std::uint64_t, element>> all(width);
    for (; line < last; ++line) {
      const T* const values = lines.data() + line * width;
      std::int64_t* const to = result.data() + line * count;
      for (std::size_t i = 0; i < width; ++i) {
        const auto key = sort_key(static_cast<A>(values[i]), order);
        if constexpr (sizeof(A) == 4) all[i] = std::uint64_t{key} << 32U | i;
        else all[i] = {key, static_cast<std::uint32_t>(i)};
      }
      arrange(all);
      for (std::size_t i = 0; i < count; ++i) {
        if constexpr (sizeof(A) == 4) to[i] = static_cast<std::int64_t>(all[i] & 0xFFFFFFFFU);
        else to[i] = static_cast<std::int64_t>(all[i].second);
      }
    }
  });
  return result.transpose(axis, -1).contiguous();
}

template <tensor_or_variable X>
[[nodiscard]] auto taken_in_order(std::string_view call, const X& x, int axis, sort_order order,
                                  std::size_t count) {
  require_uncut(x, call);
  auto found = sorted_places(values_of(x), axis, order, count);
  auto values = gather(x, axis, found);
  return indexed_values<decltype(values)>{std::move(values), std::move(found)};
}

}  // namespace detail

/// The elements along `axis` in order, and where they were; equal ones in the order of x, a NaN as
/// the largest of all.
template <detail::tensor_or_variable X>
[[nodiscard]] auto sort(const X& x, int axis = -1, sort_order order = sort_order::ascending,
                        call_site = call_site::current()) {
  return detail::taken_in_order("sort", x, axis, order, x.shape()[resolve_axis(axis, x.shape())]);
}
/// Where they were.
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<std::int64_t> argsort(const X& x, int axis = -1,
                                           sort_order order = sort_order::ascending,
                                           call_site = call_site::current()) {
  return detail::sorted_places(detail::values_of(x), axis, order,
                               x.shape()[resolve_axis(axis, x.shape())]);
}
/// The first k of sort(x, axis, order): by default the k largest. Throws usage_error for more than
/// there are.
template <detail::tensor_or_variable X>
[[nodiscard]] auto topk(const X& x, std::size_t k, int axis = -1,
                        sort_order order = sort_order::descending,
                        call_site = call_site::current()) {
  require(k <= x.shape()[resolve_axis(axis, x.shape())],
          "topk: there are no {} elements along axis {} of shape {}", k, axis,
          to_string(x.shape()));
  return detail::taken_in_order("topk", x, axis, order, k);
}

}  // namespace parx
