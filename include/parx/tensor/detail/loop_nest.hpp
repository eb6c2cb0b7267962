// loop_nest: how to walk N arrays of one logical shape and different strides with long inner loops.
//
// Axes of extent 1 disappear and neighbouring axes that are contiguous in every array become one,
// so that adding two equal contiguous tensors is one loop, and adding a bias row is two. The last
// axis is passed to the caller as a run (length and one step per array); a counter for each axis
// walks the others. Pure.
#pragma once

#include <array>
#include <cstddef>

#include <parx/core/parallel_for.hpp>
#include <parx/tensor/shape.hpp>

namespace parx::inline PARX_ABI::detail {

template <std::size_t N>
struct loop_nest {
  std::size_t rank = 0;                        // outer axes plus the inner one; at least 1
  std::array<std::size_t, max_rank> extent{};  // [rank - 1] is the inner run's length
  std::array<std::array<std::size_t, N>, max_rank> step{};
  bool empty = false;

  // Not inlined: it has many callers with [[gnu::flatten]]. for_each_run is, as runs may be short.
  [[gnu::noinline]] loop_nest(const shape& whole, const std::array<strides, N>& steps) {
    for (std::size_t axis = 0; axis < whole.rank(); ++axis) {
      if (whole[axis] == 0) empty = true;
      if (whole[axis] == 1) continue;
      std::array<std::size_t, N> here{};
      for (std::size_t i = 0; i < N; ++i) here[i] = steps[i][axis];
      if (rank > 0 && joins(here, whole[axis])) {
        extent[rank - 1] *= whole[axis];
        step[rank - 1] = here;
      } else {
        extent[rank] = whole[axis];
        step[rank] = here;
        ++rank;
      }
    }
    if (rank == 0) {
      extent[0] = 1;
      rank = 1;
    }
  }

  [[nodiscard]] std::size_t run_length() const noexcept { return extent[rank - 1]; }
  [[nodiscard]] const std::array<std::size_t, N>& run_step() const noexcept {
    return step[rank - 1];
  }

  /// The number of inner runs.
  [[nodiscard]] std::size_t runs() const noexcept {
    std::size_t count = empty ? 0 : 1;
    for (std::size_t axis = 0; axis + 1 < rank; ++axis) count *= extent[axis];
    return count;
  }

  /// Whether array `i` moves on with every inner run.
  [[nodiscard]] bool moves_between_runs(std::size_t i) const noexcept {
    for (std::size_t axis = 0; axis + 1 < rank; ++axis) {
      if (step[axis][i] == 0) return false;
    }
    return true;
  }

  /// Calls run(offsets) for each inner run, offsets in elements.
  template <typename Run>
  void for_each_run(Run&& run) const {
    for_each_run(0, runs(), run);
  }
  /// The same for the inner runs first ... last - 1.
  template <typename Run>
  void for_each_run(std::size_t first, std::size_t last, Run&& run) const {
    if (first < last) walk(at_run(first), last - first, run);
  }

  /// Calls run(offsets, count) for all elements, by the threads of the rank: for the inner runs, or
  /// for pieces of it where there is one. A thread does about `grain` elements at a time.
  template <typename Run>
  void for_each_run_by_threads(const Run& run, std::size_t grain = elements_of_a_block) const {
    const std::size_t count = runs(), length = run_length();
    if (count == 0) return;
    const bool in_pieces = count == 1;
    parallel_for(in_pieces ? length : count, in_pieces ? grain : (grain - 1) / length + 1,
                 [&](std::size_t first, std::size_t last) {
                   const std::size_t items = last - first;
                   // One walk for both, so that the code of `run` is made once.
                   walk(in_pieces ? within_run(first) : at_run(first), in_pieces ? 1 : items,
                        [&](const auto& offset) { run(offset, in_pieces ? items : length); });
                 });
  }

 private:
  struct position {
    std::array<std::size_t, N> offset{};
    std::array<std::size_t, max_rank> counter{};  // of the outer axes
  };

  [[nodiscard]] position within_run(std::size_t element) const {
    position here;
    for (std::size_t i = 0; i < N; ++i) here.offset[i] = element * run_step()[i];
    return here;
  }
  [[nodiscard]] position at_run(std::size_t number) const {
    position here;
    for (std::size_t axis = rank - 1; number > 0 && axis-- > 0; number /= extent[axis]) {
      here.counter[axis] = number % extent[axis];
      for (std::size_t i = 0; i < N; ++i) here.offset[i] += step[axis][i] * here.counter[axis];
    }
    return here;
  }

  /// Calls run(offsets) for `count` inner runs, at least one.
  template <typename Run>
  void walk(position here, std::size_t count, Run&& run) const {
    for (;; --count) {
      run(static_cast<const std::array<std::size_t, N>&>(here.offset));
      if (count == 1) return;
      std::size_t axis = rank - 1;
      for (;;) {
        --axis;
        for (std::size_t i = 0; i < N; ++i) here.offset[i] += step[axis][i];
        if (++here.counter[axis] < extent[axis]) break;
        for (std::size_t i = 0; i < N; ++i) here.offset[i] -= step[axis][i] * extent[axis];
        here.counter[axis] = 0;
      }
    }
  }

  [[nodiscard]] bool joins(const std::array<std::size_t, N>& here, std::size_t count) const {
    for (std::size_t i = 0; i < N; ++i) {
      if (step[rank - 1][i] != here[i] * count) return false;
    }
    return true;
  }
};

/// The strides of a view of `from` with shape `to`, its axes aligned at the end and repeated where
/// `from` has extent 1 or no axis. The shapes must be broadcastable.
[[nodiscard]] inline strides broadcast_strides(const shape& from, const strides& steps,
                                               const shape& to) noexcept {
  strides result{};
  const std::size_t lead = to.rank() - from.rank();
  for (std::size_t axis = 0; axis < from.rank(); ++axis) {
    result[lead + axis] = from[axis] == 1 ? 0 : steps[axis];
  }
  return result;
}

}  // namespace parx::detail
