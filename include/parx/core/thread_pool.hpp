// thread_pool: the threads that help a caller with the blocks of parallel_for.
//
// Blocks are taken from one counter, by the caller too, and the caller waits for blocks, not for
// threads: a worker that got no core in time is not missed, and finds nothing to do when it comes.
// (OpenMP's join waits for every thread: 20 ms where another process has one's core.) The counter
// and the number of the call are one word, the ticket, so a late worker cannot take a block of a
// call that it has not read. Workers spin for 50 us after a call, then sleep; where the host has
// fewer cores than threads they sleep at once.
//
// A worker that loses its core in the middle of a block is waited for: a time slice, milliseconds.
// Beside another busy process that would happen again and again, so the caller then works alone for
// 20 ms, after the next loss for 40, up to a second: it loses less than a hundredth of its time and
// has its workers back soon after their cores are free.
//
// Threads: one caller at a time has the pool; another works alone meanwhile, with the same result.
// A forked child has no workers of its parent's and starts its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/float_control.hpp>

namespace parx::inline PARX_ABI::detail {

/// body(first, last) for the items first ... last - 1 of a block.
struct block_body {
  void (*call)(const void* body, std::size_t first, std::size_t last);
  const void* body;
};

class thread_pool {
 public:
  /// The process's. If it is new, it has as many threads as the program has asked for, else
  /// `threads`, else as choose_threads() says (0). Throws the usage_error of that.
  [[nodiscard]] static thread_pool& of_this_process(int threads = 0);
  /// From now on `count` of them, also in forked children. As set_threads().
  static void set_threads_of_process(int count);
  /// Whether the calling thread is in a block of some call.
  [[nodiscard]] static bool is_inside() noexcept { return inside(); }

  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;

  /// The caller and its workers, which start with the first call that has blocks for them.
  [[nodiscard]] int threads() const noexcept { return threads_.load(std::memory_order_relaxed); }
  /// Waits for the call that is going on. Not from within a block.
  void set_threads(int count);
  /// For a rank of a job: as many threads, unless the program has chosen itself, the caller on
  /// cores[0] and worker i on cores[i] (empty: anywhere). `shared`: other ranks' threads have the
  /// same cores, so that nobody may spin. As set_threads() otherwise.
  static void lay_out(int threads, std::vector<int> cores, bool shared);

  /// Runs all blocks of `grain` items of 0 ... count - 1. Throws the exception of the lowest block
  /// that threw, after all have ended.
  void run(std::size_t count, std::size_t grain, block_body body);

  /// The same on the calling thread alone, up to the first block that throws.
  static void run_alone(std::size_t count, std::size_t grain, block_body body);

 private:
  using clock = std::chrono::steady_clock;

  explicit thread_pool(int threads) noexcept : threads_(threads) {}

  static constexpr std::uint64_t block_bits = 32;
  static constexpr std::uint64_t closed = (std::uint64_t{1} << block_bits) - 1;
  [[nodiscard]] static std::uint64_t call_of(std::uint64_t ticket) { return ticket >> block_bits; }
  [[nodiscard]] static std::uint64_t block_of(std::uint64_t ticket) { return ticket & closed; }

  [[nodiscard]] static bool& inside() noexcept {
    static thread_local bool in_a_block = false;
    return in_a_block;
  }

  void start_workers();
  void stop_workers() noexcept;
  void serve(int worker, std::uint32_t seen) noexcept;
  /// Returns how long the shortest of them took; 0 for none.
  clock::duration take_blocks(std::uint64_t call) noexcept;
  void wait_for_blocks_in_hand(std::uint32_t blocks) noexcept;
  void note_wait(clock::time_point now, clock::duration waited, clock::duration block) noexcept;
  void leave_workers_core() const noexcept;

  std::mutex owner_;  ///< held by the caller, and while workers start or stop
  std::atomic<int> threads_;
  std::vector<std::thread> workers_;
  bool started_ = false;
  std::vector<int> cores_;
  std::atomic<bool> may_spin_{true};
  std::atomic<bool> stops_{false};
  clock::time_point alone_until_{};
  clock::duration pause_{};  ///< the last time alone; 0 while no worker has lost its core

  // The call. A worker that has read it takes a block only if the ticket is still of that call.
  alignas(64) std::atomic<std::uint64_t> ticket_{closed};  ///< number of the call, next block
  std::atomic<void (*)(const void*, std::size_t, std::size_t)> body_call_{nullptr};
  std::atomic<const void*> body_{nullptr};
  std::atomic<std::size_t> count_{0}, grain_{1};
  std::atomic<float_control::word> arithmetic_{0};

  alignas(64) std::atomic<std::uint32_t> done_{0};  ///< blocks of the call; the caller sleeps on it
  std::atomic<bool> caller_sleeps_{false};
  alignas(64) std::atomic<std::uint32_t> news_{0};  ///< changes with a call; workers sleep on it
  std::atomic<int> sleepers_{0};

  std::mutex failing_;
  std::exception_ptr failure_;
  std::uint64_t failed_block_ = 0;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/thread_pool_impl.hpp>
#endif
