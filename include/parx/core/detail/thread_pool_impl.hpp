// Definitions of thread_pool.hpp.
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/log.hpp>
#include <parx/core/start_thread.hpp>
#include <parx/core/thread_count.hpp>
#include <parx/core/thread_pool.hpp>

// OpenMP's own function where the program has one, else null; under a name of parx's, because a
// program that includes <omp.h> declares the other.
extern "C" [[gnu::weak]] int parx_omp_get_max_threads() __asm__("omp_get_max_threads");

namespace parx::inline PARX_ABI::detail {

/// Sleeps while `word` is `expected`; may return early.
inline void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
inline void wake_sleepers(const std::atomic<std::uint32_t>& word, int most) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, most, nullptr, nullptr, 0);
}

inline void pause_briefly() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Calls is_over() until it is true or `limit` has passed; returns what it said last.
template <typename IsOver>
[[nodiscard]] bool spin_until(IsOver is_over, std::chrono::nanoseconds limit) noexcept {
  using clock = std::chrono::steady_clock;
  const auto end = clock::now() + limit;
  do {
    for (int i = 0; i < 32; ++i) {
      if (is_over()) return true;
      pause_briefly();
    }
  } while (clock::now() < end);
  return is_over();
}

[[nodiscard]] inline bool pin_this_thread(int core) noexcept {
  std::vector<cpu_set_t> mask(static_cast<std::size_t>(core) / CPU_SETSIZE + 1);
  const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
  CPU_SET_S(static_cast<std::size_t>(core), bytes, mask.data());
  return ::sched_setaffinity(0, bytes, mask.data()) == 0;
}

/// While it lives, its thread is in a block of some call.
class block_of_a_call {
 public:
  explicit block_of_a_call(bool& inside) noexcept : inside_(inside), before_(inside) {
    inside_ = true;
  }
  block_of_a_call(const block_of_a_call&) = delete;
  block_of_a_call& operator=(const block_of_a_call&) = delete;
  ~block_of_a_call() { inside_ = before_; }

 private:
  bool& inside_;
  bool before_;
};

/// The pool of this process; null before its first use, and in a forked child.
[[nodiscard]] inline std::atomic<thread_pool*>& pool_of_process() noexcept {
  static std::atomic<thread_pool*> pool{nullptr};
  return pool;
}
/// What the program has asked for; 0 where it has not. Outlives a fork.
[[nodiscard]] inline std::atomic<int>& threads_by_program() noexcept {
  static std::atomic<int> count{0};
  return count;
}

PARX_INLINE thread_pool& thread_pool::of_this_process(int threads) {
  auto& shared = pool_of_process();
  if (thread_pool* const there = shared.load(std::memory_order_acquire)) return *there;
  // The child has one thread and the parent's memory: the pool is left as it was, with its locks
  // and with workers that are not there.
  static const int at_fork =
      ::pthread_atfork(nullptr, nullptr, [] { pool_of_process() = nullptr; });
  static_cast<void>(at_fork);
  if (const int asked = threads_by_program(); asked > 0) threads = asked;
  if (threads == 0) {
    const thread_choice choice = choose_threads(process_environment());
    threads = choice.threads;
    if (const std::string said = choice.warning(); !said.empty()) log0(log_level::warn, "{}", said);
    const int openmp = parx_omp_get_max_threads != nullptr ? parx_omp_get_max_threads() : 0;
    if (const std::string said = choice.warning_beside(openmp); !said.empty())
      log0(log_level::warn, "{}", said);
  }
  std::unique_ptr<thread_pool> made(new thread_pool(threads));
  thread_pool* there = nullptr;
  // Never destroyed: at the end of the process its threads sleep until they end with it.
  if (shared.compare_exchange_strong(there, made.get())) there = made.release();
  return *there;
}

PARX_INLINE void thread_pool::set_threads_of_process(int count) {
  threads_by_program() = count;
  of_this_process().set_threads(count);
}

PARX_INLINE void thread_pool::run_alone(std::size_t count, std::size_t grain, block_body body) {
  const block_of_a_call here(inside());
  for (std::size_t first = 0; first < count; first += grain) {
    body.call(body.body, first, std::min(count, first + grain));
  }
}

PARX_INLINE void thread_pool::run(std::size_t count, std::size_t grain, block_body body) {
  const std::size_t blocks = count / grain + (count % grain != 0 ? 1 : 0);
  if (blocks <= 1 || blocks >= closed || threads() == 1 || inside()) {
    return run_alone(count, grain, body);
  }
  const std::unique_lock owned(owner_, std::try_to_lock);
  if (!owned) return run_alone(count, grain, body);
  if (!started_) start_workers();
  if (workers_.empty() || clock::now() < alone_until_) return run_alone(count, grain, body);
  if (!cores_.empty()) leave_workers_core();
  const std::uint64_t call = call_of(ticket_.load(std::memory_order_relaxed)) + 1;
  ticket_.store(call << block_bits | closed);
  body_call_.store(body.call, std::memory_order_release);
  body_.store(body.body, std::memory_order_release);
  count_.store(count, std::memory_order_release);
  grain_.store(grain, std::memory_order_release);
  arithmetic_.store(float_control::get() & ~float_control::flags, std::memory_order_release);
  failure_ = nullptr;
  failed_block_ = blocks;
  done_.store(0, std::memory_order_relaxed);
  ticket_.store(call << block_bits);
  news_.fetch_add(1);
  if (sleepers_.load() > 0) {
    wake_sleepers(news_, static_cast<int>(std::min<std::size_t>(blocks - 1, workers_.size())));
  }
  const clock::duration block = take_blocks(call);
  const auto done = clock::now();
  wait_for_blocks_in_hand(static_cast<std::uint32_t>(blocks));
  const auto end = clock::now();
  note_wait(end, end - done, block);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

PARX_INLINE void thread_pool::note_wait(clock::time_point now, clock::duration waited,
                                        clock::duration block) noexcept {
  using std::chrono::milliseconds;
  // Of the call's blocks: none takes so much longer than another. (The caller may have lost its own
  // core in some of them, but not in the shortest.)
  if (waited > milliseconds(1) && block > clock::duration::zero() && waited > 8 * block) {
    pause_ = std::clamp<clock::duration>(2 * pause_, milliseconds(20), std::chrono::seconds(1));
    alone_until_ = now + pause_;
  } else if (pause_ > clock::duration::zero() && now > alone_until_ + milliseconds(100)) {
    pause_ = {};
  }
}

PARX_INLINE auto thread_pool::take_blocks(std::uint64_t call) noexcept -> clock::duration {
  const block_of_a_call here(inside());
  auto shortest = clock::duration::zero();
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (call_of(ticket) == call && block_of(ticket) != closed) {
    const auto body_call = body_call_.load(std::memory_order_acquire);
    const void* const body = body_.load(std::memory_order_acquire);
    const std::size_t count = count_.load(std::memory_order_acquire);
    const std::size_t grain = grain_.load(std::memory_order_acquire);
    const auto arithmetic = arithmetic_.load(std::memory_order_acquire);
    const std::size_t block = block_of(ticket), first = block * grain;
    if (first >= count) break;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    if ((float_control::get() & ~float_control::flags) != arithmetic) {
      float_control::set(arithmetic);
    }
    const auto begin = clock::now();
    try {
      body_call(body, first, std::min(count, first + grain));
    } catch (...) {
      const std::lock_guard lock(failing_);
      if (block < failed_block_) {
        failed_block_ = block;
        failure_ = std::current_exception();
      }
    }
    const auto took = clock::now() - begin;
    if (shortest == clock::duration::zero() || took < shortest) shortest = took;
    done_.fetch_add(1);
    if (caller_sleeps_.load()) wake_sleepers(done_, 1);
    ticket = ticket_.load(std::memory_order_acquire);
  }
  return shortest;
}

PARX_INLINE void thread_pool::wait_for_blocks_in_hand(std::uint32_t blocks) noexcept {
  const auto all_done = [&] { return done_.load(std::memory_order_acquire) == blocks; };
  if (all_done()) return;
  // A block takes up to some hundred microseconds; longer means that its thread has lost its core.
  if (may_spin_ && spin_until(all_done, std::chrono::microseconds(200))) return;
  caller_sleeps_.store(true);
  for (std::uint32_t done; (done = done_.load()) != blocks;) sleep_on(done_, done);
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

PARX_INLINE void thread_pool::serve(int worker, std::uint32_t seen) noexcept {
  ::pthread_setname_np(::pthread_self(), "parx worker");
  if (const auto at = static_cast<std::size_t>(worker); at < cores_.size()) {
    static_cast<void>(pin_this_thread(cores_[at]));
  }
  for (;;) {
    const auto is_news = [&] { return news_.load(std::memory_order_acquire) != seen; };
    if (!(may_spin_ && spin_until(is_news, std::chrono::microseconds(50)))) {
      sleepers_.fetch_add(1);
      while (!is_news()) sleep_on(news_, seen);
      sleepers_.fetch_sub(1);
    }
    if (stops_.load()) return;
    seen = news_.load(std::memory_order_acquire);
    take_blocks(call_of(ticket_.load(std::memory_order_acquire)));
  }
}

PARX_INLINE void thread_pool::start_workers() {
  started_ = true;
  alone_until_ = {};  // new workers have not lost their cores yet
  pause_ = {};
  stops_ = false;
  const std::uint32_t seen = news_.load();
  try {
    for (int i = 1; i < threads(); ++i) {
      workers_.push_back(start_thread("that computes", [this, i, seen] { serve(i, seen); }));
    }
  } catch (const error& refused) {
    log(log_level::warn, "computing goes on with {} of {} threads: {}", workers_.size() + 1,
        threads(), refused.what());
  }
}

PARX_INLINE void thread_pool::stop_workers() noexcept {
  stops_ = true;
  news_.fetch_add(1);
  wake_sleepers(news_, static_cast<int>(workers_.size()));
  for (std::thread& each : workers_) each.join();
  workers_.clear();
  started_ = false;
}

PARX_INLINE void thread_pool::set_threads(int count) {
  const std::lock_guard owned(owner_);
  if (count != threads()) stop_workers();
  threads_ = count;
}

[[gnu::cold]] PARX_INLINE void thread_pool::lay_out(int threads, std::vector<int> cores,
                                                    bool shared) {
  thread_pool& pool = of_this_process(threads);
  const std::lock_guard owned(pool.owner_);
  pool.stop_workers();
  if (threads_by_program() == 0) pool.threads_ = threads;
  pool.cores_ = std::move(cores);
  pool.may_spin_ = !shared;
}

/// The kernel may leave the caller on a worker's core for long, where each of them keeps the other
/// waiting. It is moved to its own, but not bound to it: threads that it starts would inherit that.
PARX_INLINE void thread_pool::leave_workers_core() const noexcept {
  const int here = ::sched_getcpu();
  const auto place = std::find(cores_.begin(), cores_.end(), here);
  if (place == cores_.begin() || place == cores_.end()) return;
  static thread_local std::chrono::steady_clock::time_point next{};
  const auto now = std::chrono::steady_clock::now();
  if (now < next) return;
  next = now + std::chrono::milliseconds(1);
  cpu_set_t before;
  if (::sched_getaffinity(0, sizeof before, &before) != 0) return;
  if (CPU_COUNT(&before) == 1 || !pin_this_thread(cores_.front())) return;
  ::sched_setaffinity(0, sizeof before, &before);
}

}  // namespace parx::detail
