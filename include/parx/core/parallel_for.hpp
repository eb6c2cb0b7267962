// parallel_for, ordered_reduce: a loop divided among the threads of this rank.
//
// The loop is cut into blocks by its length and a grain alone, never by the number of threads, and
// sums of blocks are added in the order of blocks: so results have the same bits with 1 thread and
// with 64. Blocks of 20 to 200 us of work are right; a call costs 0.5 us where a thread helps, and
// below 10 us of work help costs more than it brings: choose the grain so that it is one block.
//
// A body may call parallel_for: that runs on its thread alone. So do calls of a second thread of
// the program while one has the workers. A body must not communicate with other ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/error.hpp>
#include <parx/core/thread_pool.hpp>

namespace parx::inline PARX_ABI {

/// The threads that this process computes with, the caller among them: PARX_THREADS, else
/// OMP_NUM_THREADS, else SLURM_CPUS_PER_TASK, else 1, and no more than the process may use at once
/// (core/thread_count.hpp). Throws usage_error for a PARX_THREADS that is no number from 1.
[[nodiscard]] inline int get_num_threads() {
  return detail::thread_pool::of_this_process().threads();
}

/// Chooses that number in place of the environment, for all threads of the program; waits for a
/// parallel_for that is going on. Throws usage_error below 1, and within a parallel_for.
inline void set_num_threads(int count) {
  if (count < 1) throw_usage("set_num_threads({}): there is at least one thread", count);
  if (detail::thread_pool::is_inside()) {
    throw_usage("set_num_threads({}) within a parallel_for, which has the threads", count);
  }
  detail::thread_pool::set_threads_of_process(count);
}

/// body(first, last) for the blocks [0, grain), [grain, 2 grain) ... of 0 ... count - 1, each once,
/// in any order and by any thread; returns when all have ended. If blocks throw, the exception of
/// the lowest of them is thrown here; the others may or may not have run.
template <typename Body>
void parallel_for(std::size_t count, std::size_t grain, Body&& body) {
  using function = std::remove_reference_t<Body>;
  static_assert(std::is_invocable_v<function&, std::size_t, std::size_t>,
                "parallel_for calls its body with the first item of a block and the one after its "
                "last: [&](std::size_t first, std::size_t last) { ... }");
  if (count == 0) return;
  // One copy of the loop's code for the calling thread alone and for all.
  const auto call =
      [](const void* f, std::size_t first, std::size_t last) __attribute__((noinline)) {
    (*static_cast<function*>(const_cast<void*>(f)))(first, last);
  };
  if (count <= std::max<std::size_t>(grain, 1)) {
    call(std::addressof(body), 0, count);
    return;
  }
  detail::thread_pool::of_this_process().run(count, std::max<std::size_t>(grain, 1),
                                             {call, std::addressof(body)});
}

/// A block of a loop over elements: some 10 us of additions in memory, 30 us of exponentials.
inline constexpr std::size_t elements_of_a_block = 32768;
/// body(i) for i in 0 ... count - 1, by the threads of the rank.
template <typename Body>
void for_each_element(std::size_t count, const Body& body) {
  parallel_for(count, elements_of_a_block, [&](std::size_t i, std::size_t last) {
    for (; i < last; ++i) body(i);
  });
}
/// Rows of a block of a loop over rows that take several passes, or several arrays: some 20 us.
[[nodiscard]] constexpr std::size_t rows_of_a_block(std::size_t width) noexcept {
  return elements_of_a_block / 4 / std::max<std::size_t>(width, 1) + 1;
}

/// The sum of of_block(first, last) over the same blocks, added in their order; T() for none.
template <typename T, typename OfBlock>
[[nodiscard]] T ordered_reduce(std::size_t count, std::size_t grain, OfBlock&& of_block) {
  const std::size_t size = std::max<std::size_t>(grain, 1);
  if (count <= size) return count == 0 ? T() : of_block(std::size_t{0}, count);
  std::vector<T> sums((count - 1) / size + 1);
  parallel_for(count, size, [&](std::size_t first, std::size_t last) {
    sums[first / size] = of_block(first, last);
  });
  T sum = sums.front();
  for (std::size_t i = 1; i < sums.size(); ++i) sum += sums[i];
  return sum;
}

}  // namespace parx
