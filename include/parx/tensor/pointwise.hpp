// Element-wise functions with broadcasting: map(f, a), map(f, a, b), ... and the same into given
// memory.
//
// Operands are broadcast by NumPy's rule and may be strided views. The inner loops see steps 0 and
// 1 as constants, so that the compiler vectorises equal shapes, rows against matrices and scalars
// alike.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/tensor/detail/loop_nest.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Calls body(step...) with every step, which is 0 or 1, as an integral_constant.
template <typename Body, typename... Fixed>
void with_constant_steps(const std::size_t* /*steps*/, std::index_sequence<> /*rest*/, Body& body,
                         Fixed... fixed) {
  body(fixed...);
}
template <typename Body, std::size_t First, std::size_t... Rest, typename... Fixed>
void with_constant_steps(const std::size_t* steps, std::index_sequence<First, Rest...> /*rest*/,
                         Body& body, Fixed... fixed) {
  constexpr std::index_sequence<Rest...> rest;
  if (steps[First] == 0) {
    with_constant_steps(steps, rest, body, fixed..., std::integral_constant<std::size_t, 0>{});
  } else {
    with_constant_steps(steps, rest, body, fixed..., std::integral_constant<std::size_t, 1>{});
  }
}

// flatten: the loops vectorise only with f inlined, however large it is.
template <typename Function, typename R, typename... T, std::size_t... I>
[[gnu::flatten]] void map_runs(Function& f, const tensor<R>& target,
                               std::index_sequence<I...> operands, const tensor<T>&... operand) {
  constexpr std::size_t n = sizeof...(T);
  const loop_nest<n + 1> nest(
      target.shape(),
      {target.strides(), broadcast_strides(operand.shape(), operand.strides(), target.shape())...});
  const std::size_t count = nest.run_length();
  const auto step = nest.run_step();
  nest.for_each_run([&](const auto& offset) {
    R* const to = target.data() + offset[0];
    const std::tuple<const T*...> from{(operand.data() + offset[I + 1])...};
    if (step[0] == 1 && ((step[I + 1] <= 1) && ...)) {
      auto body = [&](auto... s) {
        for (std::size_t i = 0; i < count; ++i) {
          to[i] = static_cast<R>(f(std::get<I>(from)[i * decltype(s)::value]...));
        }
      };
      with_constant_steps(step.data() + 1, operands, body);
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        to[i * step[0]] = static_cast<R>(f(std::get<I>(from)[i * step[I + 1]]...));
      }
    }
  });
}

}  // namespace detail

/// target[i] = f(operand[i]...); the operands broadcast to the target's shape. The target may be
/// one of the operands. Throws usage_error naming both shapes.
template <typename R, typename Function, typename... T>
void map_into(const tensor<R>& target, Function&& f, const tensor<T>&... operand) {
  const auto check = [&](const shape& s) {
    require(s.rank() <= target.rank() && broadcast_shapes(s, target.shape()) == target.shape(),
            "an operand of shape {} does not broadcast to the result's shape {}", to_string(s),
            to_string(target.shape()));
  };
  (check(operand.shape()), ...);
  detail::map_runs(f, target, std::index_sequence_for<T...>{}, operand...);
}

/// A new contiguous tensor of f(operand...), in the shape that the operands broadcast to. Throws
/// usage_error naming both shapes where they do not.
template <typename Function, typename First, typename... Rest>
[[nodiscard]] auto map(Function&& f, const tensor<First>& first, const tensor<Rest>&... rest) {
  using result = std::decay_t<std::invoke_result_t<Function&, First, Rest...>>;
  shape s = first.shape();
  ((s = broadcast_shapes(s, rest.shape())), ...);
  tensor<result> target = tensor<result>::empty(s);
  detail::map_runs(f, target, std::make_index_sequence<1 + sizeof...(Rest)>{}, first, rest...);
  return target;
}

}  // namespace parx
