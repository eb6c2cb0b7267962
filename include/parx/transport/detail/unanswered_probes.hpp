// unanswered_probes: for how long the address of each rank has not answered probes
// (job::has_ended).
//
// Only probes that follow each other closely count: a single packet may be lost. Pure but for the
// lock. Threads: safe from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <vector>

#include <parx/core/stream_options.hpp>

namespace parx::inline PARX_ABI::detail {

class unanswered_probes {
 public:
  using clock = std::chrono::steady_clock;

  explicit unanswered_probes(int world_size) : spans_(static_cast<std::size_t>(world_size)) {}

  void note_answer(int rank) {
    const std::lock_guard lock(mutex_);
    at(rank) = {};
  }
  void note_no_answer(int rank, clock::time_point now = clock::now()) {
    const std::lock_guard lock(mutex_);
    span& known = at(rank);
    if (now - known.last > longest_gap) known.first = now;
    known.last = now;
  }
  /// Whether the rank's last probe had no answer.
  [[nodiscard]] bool has_begun(int rank) {
    const std::lock_guard lock(mutex_);
    return at(rank).last != clock::time_point{};
  }
  /// From the first to the last of the rank's probes without an answer; 0 where it has answered.
  [[nodiscard]] clock::duration of(int rank) {
    const std::lock_guard lock(mutex_);
    return at(rank).last - at(rank).first;
  }

 private:
  static constexpr std::chrono::seconds longest_gap = longest_silence / 2;
  struct span {
    clock::time_point first, last;
  };
  [[nodiscard]] span& at(int rank) noexcept { return spans_[static_cast<std::size_t>(rank)]; }

  std::mutex mutex_;
  std::vector<span> spans_;  ///< by rank
};

}  // namespace parx::detail
