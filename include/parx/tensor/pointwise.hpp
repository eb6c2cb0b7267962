// Element-wise functions with broadcasting: map(f, a), map(f, a, b), ... and the same into given
// memory.
//
// Operands are broadcast by NumPy's rule and may be strided views. The inner loops see steps 0 and
// 1 as constants, so that the compiler vectorises equal shapes, rows against matrices and scalars
// alike. What it would not vectorise is written on packets: map(on_packets(f), a).
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/tensor/detail/loop_nest.hpp>
#include <parx/tensor/packet.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

/// Says that f takes and returns packets (tensor/packet.hpp). The operands and the result are then
/// tensors of one type.
template <typename Function>
struct on_packets : Function {
  explicit on_packets(Function function) : Function(std::move(function)) {}
  using Function::operator();
};

/// Whether a function is one of on_packets().
template <typename Function>
inline constexpr bool is_on_packets = false;
template <typename Function>
inline constexpr bool is_on_packets<on_packets<Function>> = true;

namespace detail {

/// The type of f's result for elements T and U...
template <typename Function, typename T, typename... U>
struct map_result {
  using type = std::decay_t<std::invoke_result_t<Function&, T, U...>>;
};
template <typename Function, typename T, typename... U>
struct map_result<on_packets<Function>, T, U...> {
  static_assert((std::is_same_v<T, U> && ...), "a function of packets takes tensors of one type");
  using type = T;
};

/// The elements of an inner run: element i is data[i * step]. Step is a constant 0 or 1, or a
/// number.
template <typename T, typename Step>
struct element_run {
  T* data;
  Step step;

  [[nodiscard]] T& operator[](std::size_t i) const noexcept { return data[i * step]; }
  /// The packet from element i on, or its first `left` elements.
  template <typename... Left>
  [[nodiscard, gnu::always_inline]] packet<std::remove_const_t<T>> load(std::size_t i,
                                                                        Left... left) const {
    using element = std::remove_const_t<T>;
    if constexpr (std::is_same_v<Step, std::integral_constant<std::size_t, 0>>) {
      return all_of<packet<element>>(*data);
    } else if constexpr (std::is_same_v<Step, std::integral_constant<std::size_t, 1>>) {
      return load_packet<element>(data + i, left...);
    } else {
      element gathered[packet_size<element>]{};
      for (std::size_t k = 0; k < packet_count<element>(left...); ++k) gathered[k] = (*this)[i + k];
      return load_packet<element>(gathered);
    }
  }
  template <typename... Left>
  [[gnu::always_inline]] void store(std::size_t i, const packet<T>& value, Left... left) const {
    if constexpr (std::is_same_v<Step, std::integral_constant<std::size_t, 1>>) {
      store_packet(data + i, value, left...);
    } else {
      T scattered[packet_size<T>];
      store_packet(scattered, value);
      for (std::size_t k = 0; k < packet_count<T>(left...); ++k) (*this)[i + k] = scattered[k];
    }
  }
};

// flatten: the loops vectorise only with f inlined, however large it is.
template <typename Function, typename To, typename... From>
[[gnu::flatten]] void map_run(Function& f, std::size_t count, To to, From... from) {
  using R = std::remove_reference_t<decltype(to[0])>;
  if constexpr (is_on_packets<std::remove_const_t<Function>>) {
    for_each_packet<R>(count, [&](std::size_t i, auto... left) PARX_PACKET_BODY {
      to.store(i, f(from.load(i, left...)...), left...);
    });
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<R>(f(from[i]...));
  }
}

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

template <typename Function, typename R, typename... T, std::size_t... I>
void map_runs(Function& f, const tensor<R>& target, std::index_sequence<I...> operands,
              const tensor<T>&... operand) {
  constexpr std::size_t n = sizeof...(T);
  const loop_nest<n + 1> nest(
      target.shape(),
      {target.strides(), broadcast_strides(operand.shape(), operand.strides(), target.shape())...});
  const auto step = nest.run_step();
  nest.for_each_run_by_threads([&target, &operand..., &step, &f, operands](const auto& offset,
                                                                           std::size_t count) {
    R* const to = target.data() + offset[0];
    const std::tuple<const T*...> from{(operand.data() + offset[I + 1])...};
    if (step[0] == 1 && ((step[I + 1] <= 1) && ...)) {
      auto body = [&](auto... s) {
        map_run(f, count, element_run<R, std::integral_constant<std::size_t, 1>>{to, {}},
                element_run<const T, decltype(s)>{std::get<I>(from), s}...);
      };
      with_constant_steps(step.data() + 1, operands, body);
    } else {
      map_run(f, count, element_run<R, std::size_t>{to, step[0]},
              element_run<const T, std::size_t>{std::get<I>(from), step[I + 1]}...);
    }
  });
}

}  // namespace detail

/// target[i] = f(operand[i]...); the operands broadcast to the target's shape. The target may be
/// one of the operands. f is called by several threads at once where the rank has several. Throws
/// usage_error naming both shapes.
template <typename R, typename Function, typename... T>
void map_into(const tensor<R>& target, Function&& f, const tensor<T>&... operand) {
  const auto check = [&](const shape& s) {
    require(s.rank() <= target.rank() && broadcast_shapes(s, target.shape()) == target.shape(),
            "an operand of shape {} does not broadcast to the result's shape {}", to_string(s),
            to_string(target.shape()));
  };
  (check(operand.shape()), ...);
  (operand.require_values(), ...);
  detail::map_runs(f, target, std::index_sequence_for<T...>{}, operand...);
}

/// A new contiguous tensor of f(operand...), in the shape that the operands broadcast to. f is
/// called as by map_into. Of logits that are cut by classes (cut_rows.hpp) the result is cut too.
/// Throws usage_error naming both shapes where they do not.
template <typename Function, typename First, typename... Rest>
[[nodiscard]] auto map(Function&& f, const tensor<First>& first, const tensor<Rest>&... rest) {
  using result = typename detail::map_result<std::remove_cvref_t<Function>, First, Rest...>::type;
  shape s = first.shape();
  ((s = broadcast_shapes(s, rest.shape())), ...);
  first.require_values();
  (rest.require_values(), ...);
  tensor<result> target = tensor<result>::empty(s);
  detail::map_runs(f, target, std::make_index_sequence<1 + sizeof...(Rest)>{}, first, rest...);
  const auto note_cut = [&](const auto& operand) {
    const cut_rows* const cut = operand.cut();
    if (cut != nullptr && cut->result == cut_result::logits) [[unlikely]]
      target.note_cut_of(operand);
  };
  note_cut(first);
  (note_cut(rest), ...);
  return target;
}

}  // namespace parx
