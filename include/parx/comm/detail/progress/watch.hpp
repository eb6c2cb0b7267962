// watch: what a rank does about a group's calls while nothing moves.
//
// It looks at deadlines and at the job's abort reason, tells the others which call it is stuck in,
// looks what they are in, and warns. It throws what ends the group: failure, link_lost or
// header_mismatch.
// Threads: belongs to whoever drives the group's progress.
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
  /// All must outlive it.
  watch(transport& network, const diagnosis& words, const pending_calls& pending,
        const group_options& options)
      : network_(network),
        diagnosis_(words),
        pending_(pending),
        options_(options),
        look_after_(options.look_after) {}

  /// Something has moved.
  void progressed() {
    idle_since_.reset();
    warned_ = suspicious_ = false;
    pause_ = shortest_pause;
    if (!posted_) return;
    withdraw_notice();
    look_after_ = std::min(2 * look_after_, 8 * options_.look_after);  // it was in vain
  }
  /// A collective has ended: the next one has not been looked at.
  void call_ended() noexcept { next_look_ = {}; }

  /// How long to sleep at most, for a call that would sleep for `limit`.
  [[nodiscard]] std::chrono::milliseconds longest_sleep(std::chrono::milliseconds limit) {
    if (!idle_since_) idle_since_ = clock::now();
    return suspicious_ ? limit.zero() : std::min(limit, look_after_);
  }

  /// After each sleep. `blocks`: a thread of the program waits for these calls.
  void look(bool blocks) {
    if (auto reason = network_.abort_reason()) {
      throw failure{std::move(*reason), errc::aborted, -1};
    }
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

  /// What no link can tell a rank that is stuck: a peer may have ended before it opened one, and
  /// two different calls with the same number may have no link in common.
  void look_around(bool blocks) {
    if (clock::now() < next_look_) return;
    // Soon again at first: the others may be about to post what they are in.
    next_look_ = clock::now() + pause_;
    pause_ = std::min(2 * pause_, longest_pause);
    std::vector<int> peers;
    const auto ended = [&](int peer) {
      return peer != network_.rank() && (pending_.has_lost(peer) || network_.has_ended(peer));
    };
    pending_.for_each([&](const call& request) {
      auto missing = pending_.missing_peers(request);
      // One of many senders may well have left, but none may have been killed.
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
      // It may have done its part and ended since the last step, which did not see it yet.
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

  /// With what the others are stuck in, and were in before: with all of them in a small group, as
  /// the one that took another way may wait for this rank, and this rank for the others.
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

  /// Tells the others which call this rank is stuck in, and behind whom.
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
  /// And that it is not any more.
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
  std::chrono::milliseconds look_after_;  ///< group_options::look_after, or later
  bool warned_ = false;
  bool suspicious_ = false;  ///< an awaited rank was seen to have ended; nothing has moved since
  std::optional<clock::time_point> idle_since_;
  clock::time_point next_look_{};
  std::chrono::milliseconds pause_ = shortest_pause;  ///< from one look to the next
  std::optional<notice> posted_;  ///< while this rank is stuck
};

}  // namespace parx::detail
