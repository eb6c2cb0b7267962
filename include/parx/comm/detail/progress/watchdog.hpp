// watchdog: the checks of a rank while its group's calls make no progress.
//
// It checks deadlines and the job's abort reason, publishes a report of the call that the rank is
// stuck in, compares it with the other ranks' reports, and logs a warning. A deadlock that is
// proven (deadlock.hpp) and has stood for a while is an error. It throws what ends the group:
// failure, link_lost or header_mismatch.
// Threads: belongs to the thread that drives the group's progress.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/call_record.hpp>
#include <parx/comm/detail/progress/deadlock.hpp>
#include <parx/comm/detail/progress/diagnosis.hpp>
#include <parx/comm/detail/progress/failure.hpp>
#include <parx/comm/detail/progress/parting.hpp>
#include <parx/comm/detail/progress/pending_calls.hpp>
#include <parx/comm/detail/progress/wait_report.hpp>
#include <parx/comm/options.hpp>
#include <parx/core/blocked_threads.hpp>
#include <parx/core/find.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

/// Whose thread sleeps while it drives a group.
enum class waiter {
  program,          ///< one of the program's, or the group's while one of those waits for it
  progress_thread,  ///< the group's own
};

class watchdog {
 public:
  /// All arguments must outlive it.
  watchdog(links& network, const diagnosis& texts, const pending_calls& pending,
        const call_record& record, const group_options& options)
      : network_(network),
        diagnosis_(texts),
        pending_(pending),
        record_(record),
        options_(options),
        look_after_(options.look_after) {}

  /// Called when something has moved.
  void progressed() {
    idle_since_.reset();
    warned_ = false;
    suspects_.clear();
    pause_ = shortest_pause;
    if (!posted_) return;
    ended();
    suspected_ = {};
    search_pause_ = first_search_pause();
    ++moves_;
    withdraw_wait_report();
    look_after_ = std::min(2 * look_after_, 8 * options_.look_after);  // the report was not needed
  }
  /// Called when the group has ended.
  void ended() noexcept { inside_.reset(); }
  /// Called when a collective has ended: the next one may be checked at once.
  void call_ended() noexcept { next_check_ = {}; }

  /// The longest time to sleep, at most `limit`.
  [[nodiscard]] std::chrono::milliseconds longest_sleep(std::chrono::milliseconds limit) {
    if (!idle_since_) idle_since_ = clock::now();
    return suspects_.empty() ? std::min(limit, look_after_) : limit.zero();
  }

  /// Called after each sleep.
  void look(waiter who) {
    throw_if_over();
    const auto idle_time = clock::now() - *idle_since_;
    const std::uint32_t losses = network_.job().losses();
    const bool lost_one = std::exchange(seen_losses_, losses) != losses;
    if (lost_one) next_check_ = {};
    if (lost_one || idle_time > look_after_) check_peers(who);
    if (idle_time > options_.deadlock_after / 2) look_for_deadlock();
    if (idle_time > options_.warn_after && !warned_) {
      warned_ = true;
      if (const call* request = pending_.oldest()) {
        log(log_level::warn, "{} is {} (for {:.0f} s so far)", diagnosis_.title(*request),
            pending_.waiting_text(*request), request->until().elapsed_seconds());
      }
    }
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds shortest_pause{50}, longest_pause{1000};
  static constexpr std::chrono::milliseconds longest_search_pause{30'000};

  /// Throws where a rank has aborted the job or a call's time is over.
  void throw_if_over() const {
    throw_if_aborted(network_);
    pending_.for_each([&](const call& request) {
      if (!request.until().passed()) return;
      const auto missing = pending_.missing_peers(request);
      throw failure{formatted("timed out {}", pending_.waiting_text(request)), errc::timeout,
                    missing.empty() ? -1 : missing.front()};
    });
  }

  /// Whether the rank has ended. Where its host does not answer, that takes 200 ms, and a rank may
  /// wait for many such: so this throws what ends the wait meanwhile.
  [[nodiscard]] bool has_ended(int peer) const {
    if (network_.job().has_ended(network_.job_rank(peer))) return true;
    network_.job().abort_signalled();  // perhaps: no wait() has polled the descriptor since
    throw_if_over();
    return false;
  }
  [[nodiscard]] bool was_killed(int peer) const {
    return has_ended(peer) && !network_.job().parting_words_of(network_.job_rank(peer));
  }
  /// Whether nothing that the call awaits can come from the rank any more, unless it is here
  /// already.
  [[nodiscard, gnu::cold]] bool is_lost(const call& request, int peer) const {
    if (peer == network_.rank()) return false;
    if (is_message(request) && pending_.loss_of(peer) != nullptr) return true;
    if (!has_ended(peer)) return false;
    const auto words = network_.job().parting_words_of(network_.job_rank(peer));
    return !words || !pending_.may_still_come(request, peer, parting::all_in(*words));
  }

  /// Checks what links do not show: a peer may have ended before it opened a link, and two
  /// different calls with the same number may have no link in common.
  [[gnu::cold]] void check_peers(waiter who) {
    if (clock::now() < next_check_) return;
    // Soon again at first: the other ranks may be about to post their reports.
    next_check_ = clock::now() + pause_;
    pause_ = std::min(2 * pause_, longest_pause);
    std::vector<int> peers;
    std::vector<int> lost;
    const auto add = [](std::vector<int>& to, int peer) {
      if (!is_in(peer, to)) to.push_back(peer);
    };
    pending_.for_each([&](const call& request) {
      auto missing = pending_.missing_peers(request);
      for (const int peer : missing) add(peers, peer);
      std::erase_if(missing, [&, this](int each) { return !is_lost(request, each); });
      // For a receive from any rank, senders may leave, but none may have been killed.
      if (is_any_source(request) && std::ssize(missing) < network_.size() - 1) {
        std::erase_if(missing, [&](int each) { return !was_killed(each); });
      }
      for (const int peer : missing) add(lost, peer);
    });
    // What a rank has sent may have come since the last step, before its end was seen here: only
    // another step shows that nothing has.
    const auto suspects = std::exchange(suspects_, lost);
    for (const int peer : lost) {
      if (is_in(peer, suspects)) throw_loss_of(peer);
    }
    if (!lost.empty()) {
      next_check_ = {};
      return;
    }
    post_wait_report(who);
    compare_calls(std::move(peers));
  }
  [[noreturn, gnu::cold]] void throw_loss_of(int peer) const {
    const link_lost* const lost = pending_.loss_of(peer);
    if (lost != nullptr && lost->how == link_end::broken) throw *lost;
    throw link_lost(peer, network_.job().is_silent(network_.job_rank(peer))
                              ? "its host does not answer, and the job's store has lost it"
                              : "it has ended without taking part: its program took another "
                                "way, or it was killed");
  }

  /// Compares this rank's calls with the other ranks' present and recent ones. In a small group all
  /// ranks are compared, since this rank may not wait for the one that is in a different call.
  [[gnu::cold]] void compare_calls(std::vector<int> peers) const {
    if (network_.size() <= diagnosis::most_asked) peers = diagnosis_.others();
    const call_header* const mine = pending_.running();
    for (const int peer : peers) {
      const auto theirs = diagnosis_.wait_report_of(peer);
      if (!network_.job().has_wait_reports()) return;
      if (!theirs) continue;
      if (mine != nullptr && theirs->call.sequence == mine->sequence &&
          !theirs->call.matches(*mine)) {
        throw header_mismatch{peer, *mine, theirs->call};
      }
      if (const auto parted = record_.first_difference(peer, theirs->recent)) throw *parted;
    }
  }

  [[nodiscard]] std::chrono::milliseconds first_search_pause() const noexcept {
    return options_.deadlock_after / 20;
  }
  /// A deadlock that is found twice, with half of the limit between, is an error. The rank that
  /// enters it last finds it soon. The others look seldom after a while, because that asks the
  /// store for the reports of many ranks.
  [[gnu::cold]] void look_for_deadlock() {
    const auto now = clock::now();
    if (!posted_ || !posted_->all_blocked || now < next_search_) return;
    next_search_ = now + search_pause_;
    const deadlock found = diagnosis_.find_deadlock();
    if (!found) {
      suspected_ = {};
      search_pause_ = std::min(search_pause_ * 3 / 2, longest_search_pause);
      return;
    }
    search_pause_ = first_search_pause();
    if (!found.is_state_of(suspected_)) {
      suspected_ = found;
      suspected_since_ = now;
    }
    if (now - suspected_since_ < options_.deadlock_after / 2) return;
    if (!found.stands_since(suspected_)) return;
    throw failure{diagnosis_.text_of_deadlock(found), errc::mismatch, -1};
  }

  /// Publishes the call that this rank is stuck in and the ranks it waits for.
  [[gnu::cold]] void post_wait_report(waiter who) {
    const call* stuck = pending_.oldest();
    if (stuck == nullptr) return;
    if (!inside_) inside_.emplace();
    posted_ = {.call = stuck->header,
               .awaited = pending_.missing_peers(*stuck),
               .blocks = who == waiter::program,
               .all_blocked = blocked_threads::of_this_process().all(),
               .look = ++looks_,
               .moves = moves_};
    posted_->call.operation = static_cast<std::uint8_t>(stuck->what);
    pending_.describe_messages(*posted_);
    record_.describe(*posted_);
    diagnosis_.post(*posted_);
  }
  /// Publishes that it is no longer stuck.
  void withdraw_wait_report() {
    *posted_ = {.call = posted_->call};
    diagnosis_.post(*posted_);
    posted_.reset();
  }

  links& network_;
  const diagnosis& diagnosis_;
  const pending_calls& pending_;
  const call_record& record_;
  const group_options& options_;
  std::chrono::milliseconds look_after_;  ///< group_options::look_after, or up to 8 times that
  std::uint32_t seen_losses_ = 0;         ///< of the networks
  bool warned_ = false;
  std::vector<int> suspects_;  ///< awaited ranks that seem to be lost, and nothing has moved since
  std::optional<clock::time_point> idle_since_;
  clock::time_point next_check_{};
  std::chrono::milliseconds pause_ = shortest_pause;  ///< between two checks
  std::optional<wait_report> posted_;  ///< set while this rank is stuck
  std::uint64_t looks_ = 0, moves_ = 0;
  std::optional<blocked_threads::mark> inside_;  ///< of the thread that drives, while it is stuck
  deadlock suspected_;
  clock::time_point suspected_since_{};
  clock::time_point next_search_{};
  std::chrono::milliseconds search_pause_ = first_search_pause();
};

}  // namespace parx::detail
