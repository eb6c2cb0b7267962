// blocked_threads: whether no thread of this process can do anything before another process does.
//
// A thread is blocked if it waits in a call of parx (it says so by a `mark`), or if it sleeps in a
// futex without a time limit: in a mutex, a condition variable or a join, which only a thread of
// the process ends. If that holds for all threads, and none has run since the look before, then
// none of them is about to enter a call. A thread that computes, sleeps for a time, reads a file or
// waits for a socket is not blocked; nor, to be safe, is any thread if /proc does not tell.
// Source: proc(5) on /proc/PID/task/TID/syscall and status; futex(2).
// Threads: safe from any.
#pragma once

#include <dirent.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

/// Whether a line of /proc/PID/task/TID/syscall is of a futex that only a thread of the process
/// ends. A join waits in a shared one, whose expected value is the other thread's number.
[[nodiscard]] inline bool sleeps_for_good(const std::string& syscall,
                                          const std::vector<long>& threads) {
  long number = -1;
  unsigned long word = 0, operation = 0, expected = 0, timeout = 1;
  if (std::sscanf(syscall.c_str(), "%ld %lx %lx %lx %lx", &number, &word, &operation, &expected,
                  &timeout) != 5) {
    return false;  // "running"
  }
  const unsigned long command = operation & static_cast<unsigned long>(FUTEX_CMD_MASK);
  const bool waits = command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
  const bool of_process = (operation & FUTEX_PRIVATE_FLAG) != 0 ||
                          std::find(threads.begin(), threads.end(),
                                    static_cast<long>(expected)) != threads.end();
  return number == SYS_futex && waits && timeout == 0 && of_process;
}

class blocked_threads {
 public:
  /// Never destroyed, since threads may outlive main.
  [[nodiscard]] static blocked_threads& of_this_process() {
    static blocked_threads& all = *new blocked_threads;
    return all;
  }

  /// While it exists, the thread that made it waits in a call of parx, or never enters one.
  class mark {
   public:
    mark() : thread_(::gettid()) { of_this_process().change(thread_, 1); }
    ~mark() { of_this_process().change(thread_, -1); }
    mark(const mark&) = delete;
    mark& operator=(const mark&) = delete;

   private:
    long thread_;
  };

  /// Whether all threads were blocked at both of the last two looks and have not run between. Looks
  /// again if the last look is some time ago; so the first answer is false. A thread without a mark
  /// that asks is not blocked itself.
  [[nodiscard]] bool all() {
    const std::lock_guard lock(mutex_);
    if (!marks_.contains(::gettid())) return false;
    const auto now = clock::now();
    if (now < next_check_) return all_;
    next_check_ = now + interval;
    auto seen = look();
    all_ = seen && *seen == before_;
    before_ = std::move(seen);
    return all_;
  }

 private:
  using clock = std::chrono::steady_clock;
  using switches = std::map<long, std::string>;  ///< by thread: how often it was switched
  static constexpr std::chrono::milliseconds interval{200};

  /// A process may be forked while another of its threads is in here. The child has one thread,
  /// with another number.
  [[gnu::cold]] blocked_threads() {
    ::pthread_atfork([] { of_this_process().mutex_.lock(); },
                     [] { of_this_process().mutex_.unlock(); },
                     [] {
                       of_this_process().marks_.clear();
                       of_this_process().mutex_.unlock();
                     });
  }

  void change(long thread, int by) {
    const std::lock_guard lock(mutex_);
    if ((marks_[thread] += by) <= 0) marks_.erase(thread);
  }

  /// Nullopt if a thread is not blocked.
  [[nodiscard, gnu::cold]] std::optional<switches> look() const {
    const std::vector<long> threads = numbers();
    switches found;
    for (const long each : threads) {
      if (marks_.contains(each)) continue;
      const auto doing = file_text(formatted("/proc/self/task/{}/syscall", each));
      const auto status = file_text(formatted("/proc/self/task/{}/status", each));
      if (!doing || !status || !sleeps_for_good(*doing, threads)) return std::nullopt;
      const auto counts = status->find("voluntary_ctxt_switches:");
      if (counts == std::string::npos) return std::nullopt;
      found.emplace(each, status->substr(counts));
    }
    if (threads.empty()) return std::nullopt;
    return found;
  }
  [[nodiscard, gnu::cold]] static std::vector<long> numbers() {
    std::vector<long> found;
    DIR* const folder = ::opendir("/proc/self/task");
    if (folder == nullptr) return found;
    while (const dirent* entry = ::readdir(folder)) {
      long number = 0;
      if (std::sscanf(entry->d_name, "%ld", &number) == 1) found.push_back(number);
    }
    ::closedir(folder);
    return found;
  }

  std::mutex mutex_;
  std::map<long, int> marks_;  ///< by thread
  std::optional<switches> before_;
  bool all_ = false;
  clock::time_point next_check_{};
};

/// Created before main, unless it is used even earlier: a child forked while another thread creates
/// it would wait for that thread, which it does not have.
inline const blocked_threads& blocked_threads_are_made = blocked_threads::of_this_process();

}  // namespace parx::detail
