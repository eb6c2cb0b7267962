// reshape, flatten, transpose, permute, slice, select, squeeze, unsqueeze: views of a variable,
// whose values are not copied (reshape copies when the value is a strided view).
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include <parx/autograd/function.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename T>
struct reshape_function {  // its name is that of the operation in errors
  void operator()(const tensor<T>& upstream, grad_sink<T> dx) const {
    dx.add(upstream.reshape(dx.shape()));
  }
};

/// A view with the same elements in the same order.
template <typename T>
[[nodiscard]] variable<T> reshaped(tensor<T> view, const variable<T>& x) {
  return differentiable_of_cut(std::move(view), reshape_function<T>{}, x);
}

template <typename T>
void add_elements(const tensor<T>& target, const tensor<T>& addend) {
  map_into(
      target, [](T a, T b) { return static_cast<T>(a + b); }, target, addend);
}

}  // namespace detail

/// See tensor::reshape; one extent may be `infer`.
template <typename T>
[[nodiscard]] variable<T> reshape(const variable<T>& x, const shape& to,
                                  call_site = call_site::current()) {
  return detail::reshaped(x.value().reshape(to), x);
}
/// For other arguments: a compile-time error that says what to do.
template <typename T, std::integral First, std::integral... More>
variable<T> reshape(const variable<T>& x, First, More...) {
  static_assert(std::is_void_v<T>, "a shape goes in braces: reshape(x, {2, parx::infer})");
  return x;
}
/// Joins the axes from `first_axis` to the last.
template <typename T>
[[nodiscard]] variable<T> flatten(const variable<T>& x, int first_axis = 1,
                                  call_site = call_site::current()) {
  return detail::reshaped(x.value().flatten(first_axis), x);
}
template <typename T>
[[nodiscard]] variable<T> squeeze(const variable<T>& x, int axis,
                                  call_site = call_site::current()) {
  return detail::reshaped(x.value().squeeze(axis), x);
}
template <typename T>
[[nodiscard]] variable<T> unsqueeze(const variable<T>& x, int axis,
                                    call_site = call_site::current()) {
  return detail::reshaped(x.value().unsqueeze(axis), x);
}

/// Axis i of the result is axis order[i] of x.
template <typename T>
[[nodiscard]] variable<T> permute(const variable<T>& x, std::span<const int> order,
                                  call_site = call_site::current()) {
  tensor<T> view = x.value().permute(order);
  std::array<int, max_rank> inverse{};
  for (std::size_t i = 0; i < order.size(); ++i) {
    inverse[resolve_axis(order[i], x.shape())] = static_cast<int>(i);
  }
  return differentiable_of_cut(
      std::move(view),
      [inverse](const tensor<T>& upstream, grad_sink<T> dx) {
        dx.add(upstream.permute(std::span<const int>(inverse).first(upstream.rank())));
      },
      x);
}
template <typename T>
[[nodiscard]] variable<T> permute(const variable<T>& x, std::initializer_list<int> order,
                                  call_site = call_site::current()) {
  return permute(x, std::span<const int>(order.begin(), order.size()));
}
template <typename T>
[[nodiscard]] variable<T> transpose(const variable<T>& x, int first_axis = -2, int second_axis = -1,
                                    call_site = call_site::current()) {
  return differentiable_of_cut(
      x.value().transpose(first_axis, second_axis),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        dx.add(upstream.transpose(first_axis, second_axis));
      },
      x);
}

/// The part [begin, end) of an axis.
template <typename T>
[[nodiscard]] variable<T> slice(const variable<T>& x, int axis, std::size_t begin, std::size_t end,
                                call_site = call_site::current()) {
  return differentiable_of_cut(
      x.value().slice(axis, begin, end),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        detail::add_elements(dx.zeroed().slice(axis, begin, end), upstream);
      },
      x);
}
/// One index of an axis, which disappears.
template <typename T>
[[nodiscard]] variable<T> select(const variable<T>& x, int axis, std::size_t index,
                                 call_site = call_site::current()) {
  return differentiable_of_cut(
      x.value().select(axis, index),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        detail::add_elements(dx.zeroed().select(axis, index), upstream);
      },
      x);
}

}  // namespace parx
