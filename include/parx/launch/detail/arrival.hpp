// arrival: how a rank that has joined its job waits until all others have, or hears why they will
// not come.
#pragma once

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>
#include <parx/core/printable.hpp>
#include <parx/launch/detail/job_keys.hpp>
#include <parx/launch/detail/join.hpp>
#include <parx/launch/launch_env.hpp>
#include <parx/store/store.hpp>
#include <parx/transport/hybrid.hpp>

namespace parx::inline PARX_ABI::detail {

class all_arrivals {
 public:
  /// Both are borrowed.
  all_arrivals(joined_job& joined, endpoint& own)
      : joined_(joined), job_(joined.job()), job_store_(*joined.part()),
        failures_(joined.failures()), endpoint_(own) {}

  /// Returns when all have come. Throws parx::error at `limit`, or where one will not.
  [[gnu::cold]] void await_everybody(const deadline& limit) {
    const auto ready = job_store_.watch(keys::ready, limit);
    if (job_store_.add(keys::arrived, 1, limit) == job_.world_size) {
      job_store_.set(keys::ready, "1", limit);
    }
    bool warned = false;
    const auto warn_at = deadline::after(std::chrono::seconds(5));
    auto look_at = deadline::after(std::chrono::seconds(1));
    for (;;) {
      const watch_state state = ready->ready();
      // Checked before the abort reason: once all have arrived, a failure is one of the program,
      // which this rank's next operation reports.
      if (state == watch_state::set) return joined_.forget_start();
      const bool answers = joined_.answer_others(std::chrono::seconds(5));
      if (auto reason = endpoint_.job()->abort_reason()) {
        throw error(errc::aborted,
                    formatted("rank {} of {} could not join the job because another rank failed "
                              "first: {}",
                              job_.rank, job_.world_size, reason->text),
                    failures_.context(limit, reason->culprit()));
      }
      if (state == watch_state::lost) {
        failures_.fail(errc::peer_lost, limit, failures_.end_of_store_host(),
                       failures_.keeping_rank());
      }
      if (limit.passed()) {
        const auto missing = missing_ranks();
        if (!missing) {
          failures_.fail(errc::rendezvous_failed, limit, failures_.silence_of_store_host(),
                         failures_.keeping_rank());
        }
        failures_.fail(
            errc::rendezvous_failed, limit,
            formatted("{} did not come within {:.0f} s. See their output: they have failed "
                      "before this point, cannot reach {}, or were never started",
                      *missing, limit.elapsed_seconds(), job_.master_host));
      }
      if (!warned && warn_at.passed()) {
        warned = true;
        const auto missing = missing_ranks();
        log(log_level::warn, "rank {} of {} has waited 5 s at {}{}", job_.rank, job_.world_size,
            failures_.place(),
            missing ? " for " + *missing : ": " + failures_.store_host_name() + " does not answer");
      }
      if (job_.rank == 0 && look_at.passed()) {
        check_for_ended(limit);
        look_at = deadline::after(std::chrono::seconds(1));
      }
      std::array<pollfd, 2> polled{
          {{ready->descriptor(), POLLIN, 0}, {endpoint_.job()->abort_descriptor(), POLLIN, 0}}};
      ::poll(polled.data(), polled.size(), limit.poll_timeout(answers ? 20 : 200));
    }
  }

  /// Reads where the others are. The rank that keeps the store waits for them a moment: if it is
  /// stopped right after, their links do not need it. Whatever fails here, the next operation says.
  [[gnu::cold]] void read_all_peers(const deadline& limit) {
    static constexpr std::chrono::milliseconds patience{2000};
    const auto until = deadline::after(std::min(limit.remaining(), patience));
    try {
      endpoint_.job()->peers().read_ahead(until);
      const bool is_last = job_store_.add(keys::met, 1, until) == job_.world_size;
      if (is_last) job_store_.set(keys::all_met, "1", until);
      if (!job_.hosts_store()) return;
      const std::vector<std::string> all_met{keys::all_met};
      job_store_.wait(all_met, until);
      // Answered after the answer to the last rank, which set this.
      static_cast<void>(job_store_.check(all_met, until));
    } catch (const error&) {
      log(log_level::debug, "the other ranks' records are read when links are opened: {}",
          text_of(std::current_exception()));
    }
  }

 private:
  /// nullopt where the store does not answer.
  [[nodiscard]] std::optional<bool> is_there(const std::string& key) const {
    bool found = false;
    const auto ask = [&](store& job_store, const deadline& limit) {
      found = job_store.check(std::vector{key}, limit);
    };
    return endpoint_.job()->store().ask_for_diagnosis(ask) ? std::optional(found) : std::nullopt;
  }
  /// nullopt where the store does not answer.
  [[nodiscard, gnu::cold]] std::optional<std::string> missing_ranks() const {
    static constexpr int most_named = 16;
    std::int64_t arrived = 0;
    const auto count = [&](store& job_store, const deadline& limit) {
      arrived = job_store.add(keys::arrived, 0, limit);
    };
    if (!endpoint_.job()->store().ask_for_diagnosis(count)) return std::nullopt;
    const auto missing = job_.world_size - static_cast<int>(arrived);
    std::vector<int> named;
    for (int rank = 0; rank < job_.world_size && std::ssize(named) < most_named; ++rank) {
      const auto has_come = is_there(endpoint::record_key(rank));  // set just before it arrives
      if (!has_come) return std::nullopt;
      if (!*has_come) named.push_back(rank);
    }
    if (named.empty()) return "the last rank";  // it has just arrived
    std::string text = formatted("{} {}", named.size() == 1 ? "rank" : "ranks", joined_text(named));
    const int unnamed = missing - static_cast<int>(named.size());
    if (unnamed > 0) text += formatted(" and {} more", unnamed);
    return text;
  }

  /// Whether a rank has joined and ended since.
  [[nodiscard]] bool has_ended(int rank) const {
    if (is_there(endpoint::record_key(rank)).value_or(false)) {
      return endpoint_.job()->has_ended(rank);
    }
    return is_there(keys::gone(rank)).value_or(false);
  }
  /// Throws where a rank has ended before all had arrived. Asks for at most 64 ranks per call.
  [[gnu::cold]] void check_for_ended(const deadline& limit) {
    for (int asked = 0; asked < std::min(64, job_.world_size); ++asked) {
      const int rank = next_asked_++ % job_.world_size;
      if (rank == job_.rank || !has_ended(rank)) continue;
      if (is_there(keys::ready).value_or(true)) return;  // it has ended after all had come
      failures_.fail(
          errc::peer_lost, limit,
          formatted("rank {} ({}) has ended or was killed before all had come; see its output",
                    rank, printable(job_store_.get(keys::claim(rank), limit))),
          rank);
    }
  }

  joined_job& joined_;
  const launch_env& job_;
  store& job_store_;
  const join_failure& failures_;
  endpoint& endpoint_;
  int next_asked_ = 0;  ///< the next rank for check_for_ended()
};

}  // namespace parx::detail
