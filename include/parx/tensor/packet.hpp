// packet: what a loop over elements computes at a time, a SIMD register of floats, or one element
// of another type.
//
//   for_each_packet<T>(count, [&](std::size_t at, auto... left) PARX_PACKET_BODY {
//     store_packet(y + at, relu(load_packet(x + at, left...)), left...);
//   });
//
// A function of packets is written once, with the operators of GCC's vector types, for floats in
// registers and for single doubles. It is SIMD code at every optimisation level: g++ 12 leaves a
// loop over plain floats scalar at -O2, and on AVX2 also at -O3 where a comparison could trap, as
// in the slope of relu or the bounds of exp. The last elements go through the same instructions as
// all others, so that the bits of an element do not depend on its place.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include <parx/types/simd.hpp>

// For the lambda of for_each_packet: in a called function its packets would go through memory.
#define PARX_PACKET_BODY __attribute__((always_inline))

namespace parx::inline PARX_ABI::detail {

template <typename T>
using packet = std::conditional_t<std::is_same_v<T, float>, simd::floats, T>;
template <typename T>
inline constexpr std::size_t packet_size = sizeof(packet<T>) / sizeof(T);

/// The type of one element of a vector type, or of a packet that is one element.
template <typename V>
struct packet_element {
  using type = std::remove_cvref_t<decltype(std::declval<V>()[0])>;
};
template <typename V>
  requires std::is_arithmetic_v<V>
struct packet_element<V> {
  using type = V;
};

/// `number` in all elements.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V all_of(
    typename packet_element<V>::type number) noexcept {
  return number - V{};
}
/// b where b < a, else a: a NaN in a stays.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V at_most(V a, V b) noexcept {
  return b < a ? b : a;
}
/// b where b > a, else a: a NaN in a stays.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V at_least(V a, V b) noexcept {
  return b > a ? b : a;
}

/// The number of elements in a packet of which `left` are in use: all, if there is no `left`.
template <typename T, typename... Left>
[[nodiscard]] constexpr std::size_t packet_count(Left... left) noexcept {
  return sizeof...(left) == 0 ? packet_size<T> : (std::size_t{0} + ... + left);
}

template <typename T>
[[nodiscard, gnu::always_inline]] inline packet<T> load_packet(const T* from) noexcept {
  packet<T> result;
  std::memcpy(&result, from, sizeof result);
  return result;
}
/// The first `left` elements; the others are zero.
template <typename T>
[[nodiscard, gnu::always_inline]] inline packet<T> load_packet(const T* from,
                                                               std::size_t left) noexcept {
  if constexpr (packet_size<T> == 1) return *from;
  else return simd::load_first(from, left);
}
template <typename T>
[[gnu::always_inline]] inline void store_packet(T* to, const packet<T>& value) noexcept {
  std::memcpy(to, &value, sizeof value);
}
template <typename T>
[[gnu::always_inline]] inline void store_packet(T* to, const packet<T>& value,
                                                std::size_t left) noexcept {
  if constexpr (packet_size<T> == 1) *to = value;
  else simd::store_first(to, value, left);
}

/// Calls body(at) for each whole packet of `count` elements, and body(at, left) for the `left`
/// elements that remain, if any.
template <typename T, typename Body>
[[gnu::always_inline]] inline void for_each_packet(std::size_t count, Body&& body) {
  constexpr std::size_t size = packet_size<T>;
  std::size_t at = 0;
  for (; at + size <= count; at += size) body(at);
  if constexpr (size > 1) {
    if (at < count) body(at, count - at);
  }
}

}  // namespace parx::detail
