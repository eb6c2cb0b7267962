// departure: how a rank leaves its job: it tells the others why, where it has failed, and the rank
// that keeps the store waits until they have read that, or have finished.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/launch/detail/job_keys.hpp>
#include <parx/launch/detail/join.hpp>
#include <parx/store/store.hpp>
#include <parx/transport/hybrid.hpp>

namespace parx::inline PARX_ABI::detail {

class departure {
 public:
  /// Borrowed.
  explicit departure(joined_job& joined) noexcept : joined_(joined), job_(joined.job()) {}

  /// Aborts the job with the exception that is being handled, unless another rank has done so.
  /// `own` may be null.
  [[gnu::cold]] void tell_others(const endpoint* own) noexcept {
    try {
      failure_record record = record_of(std::current_exception(), job_.rank);
      if (record.operation != rendezvous_name)
        record.text = formatted("rank {}: {}", job_.rank, record.text);
      joined_.answer_others(std::chrono::seconds(1));
      auto limit = deadline::after(std::chrono::seconds(2));
      if (own != nullptr && own->job()->store().is_silent()) {
        limit = own->job()->store().parting_deadline();
      }
      joined_.part()->compare_set(first_failure_key, "", to_text(record), limit);
    } catch (const std::exception&) {
      // The store is gone, and its clients notice that by themselves.
    }
  }
  /// On the rank that keeps the store: waits for ranks that are still starting, which could not
  /// read the reason from a closed store.
  void await_latecomers(const deadline& limit) noexcept {
    if (!joined_.server()) return;
    try {
      std::vector<std::string> claims;
      for (int rank = 0; rank < job_.world_size; ++rank) claims.push_back(keys::claim(rank));
      joined_.part()->wait(claims, limit);
    } catch (const std::exception&) {
      // They did not come.
    }
  }

  /// On the other ranks: counts this one as gone. Open connections do not tell who has left, as
  /// other clients may have some. `members` are the ranks that go on since `round`.
  [[gnu::cold]] void sign_off(int members, int round, const deadline& limit) noexcept {
    if (joined_.server() || joined_.part() == nullptr) return;
    if (job_.hosted_by != store_host::rank_zero) return;
    try {
      if (joined_.part()->add(keys::leavers(round), 1, limit) == members - 1) {
        joined_.part()->set(keys::all_left, "1", limit);
      }
    } catch (const std::exception&) {
      // The store is gone.
    }
  }
  /// On the rank that keeps the store, once it is no client any more: returns when the others have
  /// left or `patience` has passed, and ends the store.
  [[gnu::cold]] void await_others(std::chrono::milliseconds patience) noexcept {
    if (!joined_.server()) return;
    try {
      static constexpr std::chrono::milliseconds silence = std::chrono::seconds(5);
      store_of_job last(job_, deadline::after(silence));
      if (!have_left(last, deadline::after(std::min(patience, silence))) && patience > silence) {
        log(log_level::info,
            "this rank has finished; it keeps the job's store for the ranks that have not");
        static_cast<void>(have_left(last, deadline::after(patience)));
      }
    } catch (const std::exception&) {
      // The store's own server cannot be reached; leave without waiting.
    }
    joined_.server().reset();
  }

 private:
  [[nodiscard, gnu::cold]] bool have_left(store_of_job& last, const deadline& limit) const {
    const std::vector<std::string> key{keys::all_left};
    do {
      const auto next_look = deadline::after(std::min(limit.remaining(), deadline::duration(50)));
      if (joined_.server()->wait_for_leavers(1, next_look)) return true;  // 1: `last` itself
      if (last.part.check(key, deadline::after(std::chrono::seconds(1)))) return true;
    } while (!limit.passed());
    return false;
  }

  joined_job& joined_;
  const launch_env& job_;
};

}  // namespace parx::detail
