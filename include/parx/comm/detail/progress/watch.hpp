// watch: the checks of a rank while its group's calls make no progress (a watchdog).
//
// It checks deadlines and the job's abort reason, publishes a notice of the call that the rank is
// stuck in, compares it with the other ranks' notices, and logs a warning. It throws what ends the
// group: failure, link_lost or header_mismatch.
// Threads: belongs to the thread that drives the group's progress.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/diagnosis.hpp>
#include <parx/comm/detail/progress/failure.hpp>
#include <parx/comm/detail/progress/notice.hpp>
#include <parx/comm/detail/progress/pending_calls.hpp>
#include <parx/comm/options.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/transport/transport.hpp>

namespace parx::inline PARX_ABI::detail {

class watch {
 public:
  /// All arguments must outlive it.
  watch(transport& network, const diagnosis& texts, const pending_calls& pending,
        const group_options& options)
      : network_(network),
        diagnosis_(texts),
        pending_(pending),
        options_(options),
        look_after_(options.look_after) {}

  /// Called when something has moved.
  void progressed() {
    idle_since_.reset();
    warned_ = suspicious_ = false;
    pause_ = shortest_pause;
    if (!posted_) return;
    withdraw_notice();
    look_after_ = std::min(2 * look_after_, 8 * options_.look_after);  // the notice was not needed
  }
  /// Called when a collective has ended: the next one may be checked at once.
  void call_ended() noexcept { next_look_ = {}; }

  /// The longest time to sleep, at most `limit`.
  [[nodiscard]] std::chrono::milliseconds longest_sleep(std::chrono::milliseconds limit) {
    if (!idle_since_) idle_since_ = clock::now();
    return suspicious_ ? limit.zero() : std::min(limit, look_after_);
  }

  /// Called after each sleep. `blocks`: a thread of the program waits for these calls.
  void look(bool blocks) {
    throw_if_aborted(network_);
    pending_.for_each([&](const call& request) {
      if (!request.until.passed()) return;
      const auto missing = pending_.missing_peers(request);
      throw failure{formatted("timed out {}", pending_.waiting_text(request)), errc::timeout,
                    missing.empty() ? -1 : missing.front()};
    });
    const auto idle_time = clock::now() - *idle_since_;
    if (idle_time > look_after_) look_around(blocks);
    if (idle_time > options_.warn_after && !warned_) {
      warned_ = true;
      if (const call* request = pending_.oldest()) {
        log(log_level::warn, "{} is {} (for {:.0f} s so far)", diagnosis_.title(*request),
            pending_.waiting_text(*request), request->until.elapsed_seconds());
      }
    }
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds shortest_pause{50}, longest_pause{1000};

  /// Checks what links do not show: a peer may have ended before it opened a link, and two
  /// different calls with the same number may have no link in common.
  void look_around(bool blocks) {
    if (clock::now() < next_look_) return;
    // Soon again at first: the other ranks may be about to post their notices.
    next_look_ = clock::now() + pause_;
    pause_ = std::min(2 * pause_, longest_pause);
    std::vector<int> peers;
    const auto ended = [&](int peer) {
      return peer != network_.rank() && (pending_.has_lost(peer) || network_.has_ended(peer));
    };
    pending_.for_each([&](const call& request) {
      auto missing = pending_.missing_peers(request);
      // For a receive from any rank, senders may leave, but none may have been killed.
      if (is_any_source(request) && !std::all_of(missing.begin(), missing.end(), ended)) {
        std::erase_if(missing, [&](int each) {
          return !ended(each) || network_.may_have_left(each);
        });
      }
      for (const int peer : missing) {
        if (std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
      }
    });
    for (const int peer : peers) {
      if (!ended(peer)) continue;
      // It may have sent its data and ended since the last step: give one more step a chance.
      if (!std::exchange(suspicious_, true)) {
        next_look_ = {};
        return;
      }
      throw link_lost(
          peer, "it has ended without taking part: its program took another way, or it was killed");
    }
    post_notice(blocks);
    compare_calls(std::move(peers));
  }

  /// Compares this rank's calls with the other ranks' present and recent ones. In a small group all
  /// ranks are compared, since this rank may not wait for the one that is in a different call.
  void compare_calls(std::vector<int> peers) const {
    static constexpr int most_asked = 64;
    if (network_.size() <= most_asked) peers = diagnosis_.others();
    const call_header* const mine = pending_.running();
    for (const int peer : peers) {
      const auto theirs = diagnosis_.notice_of(peer);
      if (!network_.has_notices()) return;
      if (!theirs) continue;
      if (mine != nullptr && theirs->call.sequence == mine->sequence &&
          !theirs->call.matches(*mine)) {
        throw header_mismatch{peer, *mine, theirs->call};
      }
      if (const call_header* const parted = pending_.recent().first_other(theirs->recent)) {
        throw header_mismatch{peer, *pending_.recent().find(parted->sequence), *parted, true};
      }
    }
  }

  /// Publishes the call that this rank is stuck in and the ranks it waits for.
  void post_notice(bool blocks) {
    const call* stuck = pending_.oldest();
    if (stuck == nullptr) return;
    posted_ = {.call = stuck->header,
               .awaited = pending_.missing_peers(*stuck),
               .recent = pending_.recent().all(),
               .blocks = blocks};
    posted_->call.operation = static_cast<std::uint8_t>(stuck->what);
    diagnosis_.post(*posted_);
  }
  /// Publishes that it is no longer stuck.
  void withdraw_notice() {
    posted_->awaited.clear();
    posted_->recent.clear();
    diagnosis_.post(*posted_);
    posted_.reset();
  }

  transport& network_;
  const diagnosis& diagnosis_;
  const pending_calls& pending_;
  const group_options& options_;
  std::chrono::milliseconds look_after_;  ///< group_options::look_after, or up to 8 times that
  bool warned_ = false;
  bool suspicious_ = false;  ///< an awaited rank has ended, and nothing has moved since
  std::optional<clock::time_point> idle_since_;
  clock::time_point next_look_{};
  std::chrono::milliseconds pause_ = shortest_pause;  ///< between two checks
  std::optional<notice> posted_;  ///< set while this rank is stuck
};

}  // namespace parx::detail
