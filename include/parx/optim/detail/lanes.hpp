// lanes: the block of elements that an update rule processes at a time, in registers.
//
// A rule is the arithmetic of one step with all its constants, including the learning rate:
//   update(w, state, g)        the step of elements with a gradient
//   rest(w, state, rules)      the steps of elements without one, several in a row
// Both work on lanes with the same expressions, so that an element gets the same bits however its
// steps are grouped into calls. Eigen is used because compilers do not vectorise std::sqrt while it
// may set errno, and zero_below() because Eigen's select() handles the elements of AVX-512 vectors
// one by one.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include <Eigen/Core>

#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI::optim::detail {

// Four vector registers for each tensor.
#if defined(PARX_VECTORS_AVX512)
template <typename T>
inline constexpr std::size_t lane_count = 256 / sizeof(T);
#else
template <typename T>
inline constexpr std::size_t lane_count = 128 / sizeof(T);
#endif
template <typename T>
using lanes = Eigen::Array<T, static_cast<int>(lane_count<T>), 1>;
template <typename T, std::size_t States>
using state_lanes = std::array<lanes<T>, States>;

struct zero_below_op {
  template <typename T>
  [[nodiscard]] T operator()(const T& x, const T& limit) const noexcept {
    return std::abs(x) < limit ? T(0) : x;
  }
  template <typename Packet>
  [[nodiscard]] Packet packetOp(const Packet& x, const Packet& limit) const noexcept {
    return Eigen::internal::pandnot(x, Eigen::internal::pcmp_lt(Eigen::internal::pabs(x), limit));
  }
};

/// x where its absolute value is not less than `limit`, else 0.
template <typename A, typename B>
[[nodiscard]] auto zero_below(const A& x, const B& limit) {
  return x.binaryExpr(limit, zero_below_op{});
}

/// Calls f(w, state, offset) for each block of [begin, begin + count) of the value and its state
/// tensors, and stores what f leaves in w and state. Elements beyond the end are zero.
template <std::size_t States, typename T, typename F>
void for_each_lanes(T* value, const std::vector<tensor<T>>& state, std::size_t begin,
                    std::size_t count, F&& f) {
  constexpr std::size_t width = lane_count<T>;
  const std::size_t whole = begin + count / width * width;
  lanes<T> w;
  state_lanes<T, States> s;
  std::size_t at = begin;
  for (; at < whole; at += width) {
    w = Eigen::Map<const lanes<T>>(value + at);
    for (std::size_t k = 0; k < States; ++k) {
      s[k] = Eigen::Map<const lanes<T>>(state[k].data() + at);
    }
    f(w, s, at);
    Eigen::Map<lanes<T>> to(value + at);
    to = w;
    for (std::size_t k = 0; k < States; ++k) {
      Eigen::Map<lanes<T>> kept(state[k].data() + at);
      kept = s[k];
    }
  }
  const std::size_t left = begin + count - at;
  if (left == 0) return;
  w.setZero();
  std::copy_n(value + at, left, w.data());
  for (std::size_t k = 0; k < States; ++k) {
    s[k].setZero();
    std::copy_n(state[k].data() + at, left, s[k].data());
  }
  f(w, s, at);
  std::copy_n(w.data(), left, value + at);
  for (std::size_t k = 0; k < States; ++k) std::copy_n(s[k].data(), left, state[k].data() + at);
}

/// One step of [begin, begin + count) with the gradient `grad` (of the whole value).
template <std::size_t States, typename T, typename Rule>
void update_lanes(const Rule& rule, T* value, const std::vector<tensor<T>>& state, const T* grad,
                  std::size_t begin, std::size_t count) {
  const std::size_t end = begin + count;
  for_each_lanes<States>(value, state, begin, count,
                         [&](lanes<T>& w, state_lanes<T, States>& s, std::size_t at) {
                           if (at + lane_count<T> <= end) {
                             const lanes<T> g = Eigen::Map<const lanes<T>>(grad + at);
                             rule.update(w, s, g);
                           } else {
                             lanes<T> g = lanes<T>::Zero();
                             std::copy_n(grad + at, end - at, g.data());
                             rule.update(w, s, g);
                           }
                         });
}

}  // namespace parx::optim::detail

template <>
struct Eigen::internal::functor_traits<parx::optim::detail::zero_below_op> {
  enum { Cost = 3, PacketAccess = true };
};
