// survivors: how the surviving ranks of a job agree on the list of members.
//
// In rounds, each under a prefix of its own in the job's store. A rank enters a round by publishing
// a new record. A rank that has not entered is left out once its process has ended or the patience
// is over. The first list that is proposed holds for the round. It is final once all its ranks have
// seen it; if one of them dies before that, all start the next round. Every decision is one
// compare_set, so that all ranks see the same one, whichever of them die.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/launch/detail/job_keys.hpp>
#include <parx/store/prefix.hpp>
#include <parx/transport/hybrid.hpp>

namespace parx::inline PARX_ABI::detail {

class survivors {
 public:
  /// Blocks until the surviving ranks have agreed. `former` is this rank's present endpoint, by
  /// which the others see that it is alive. `round` is the number of rounds in the job so far.
  /// Throws parx::error where the store fails or the others went on without this rank.
  survivors(const std::shared_ptr<store>& job_store, endpoint& former, int& round,
            std::chrono::milliseconds patience)
      : former_(former) {
    do {
      const auto limit = deadline::after(patience);
      const auto part = std::make_shared<kept_prefix>(keys::round_prefix(++round), job_store);
      store_ = {part, &part->part};
      endpoint_options options = former.options();
      options.job_store = store_;
      joined_.reset(new endpoint(std::move(options)));
      members_ = decide(limit);
      const int self = former.options().rank;
      if (std::find(members_.begin(), members_.end(), self) == members_.end()) {
        throw_error(errc::closed,
                    "rank {} was left out: it did not come to shrink() while the others ({}) "
                    "waited for it, so they have gone on without it. This process can only end",
                    self, joined_text(members_));
      }
      describe_the_lost();
      store_->set(keys::ready_as(self), "1", limit_of_question());
    } while (!confirm(deadline::after(patience)));
  }

  /// An endpoint for the members, with their ranks in the job.
  [[nodiscard]] const std::shared_ptr<endpoint>& joined() const noexcept { return joined_; }
  /// In ascending order; equal on all of them.
  [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }

 private:
  struct kept_prefix {
    std::shared_ptr<store> whole;
    prefix_store part;

    kept_prefix(std::string prefix, std::shared_ptr<store> all)
        : whole(std::move(all)), part(std::move(prefix), *whole) {}
  };

  static constexpr std::chrono::milliseconds pause{5};

  [[nodiscard]] static deadline limit_of_question() {
    return deadline::after(std::chrono::seconds(10));
  }
  [[nodiscard]] bool has(const std::string& key) {
    const bool found = store_->check(std::vector{key}, limit_of_question());
    // has_ended() asks it as well, but for a while not after it was once too slow.
    former_.job()->store().note_answer();
    return found;
  }
  /// Whether a rank has ended. A probe of its port may be answered by one of those that have come:
  /// their host may have given it the port since.
  [[nodiscard]] bool is_gone(int rank, const std::vector<int>& come) {
    if (former_.job()->has_ended(rank)) return true;
    const auto& lost = former_.job()->peers().record_of(rank, limit_of_question());
    return std::any_of(come.begin(), come.end(), [&](int each) {
      const auto& present = joined_->job()->peers().record_of(each, limit_of_question());
      return each != rank && present.port == lost.port && present.address == lost.address;
    });
  }
  /// Proposes a value; returns the first one that was proposed.
  [[nodiscard]] std::string agree(std::string_view key, std::string_view mine) {
    return store_->compare_set(key, "", mine, limit_of_question());
  }

  [[nodiscard]] std::vector<int> decide(const deadline& limit) {
    for (;;) {
      // Decided already: ranks that come later are left out.
      if (has(keys::members)) return ranks_from(store_->get(keys::members, limit_of_question()));
      std::vector<int> come, absent;
      for (int rank = 0; rank < former_.options().world_size; ++rank) {
        (has(endpoint::record_key(rank)) ? come : absent).push_back(rank);
      }
      const bool complete = std::all_of(absent.begin(), absent.end(),
                                        [&](int rank) { return is_gone(rank, come); });
      if (complete || limit.passed()) {
        return ranks_from(agree(keys::members, joined_text(come, " ")));
      }
      std::this_thread::sleep_for(pause);
    }
  }

  /// Copies the records of lost ranks into this round: error messages still name them, and the
  /// table of hosts needs an entry for each rank. Says that they have ended, which the next round
  /// could not find where another process listens at the port of one.
  void describe_the_lost() {
    for (int rank = 0; rank < former_.options().world_size; ++rank) {
      if (std::find(members_.begin(), members_.end(), rank) != members_.end()) continue;
      const auto& record = former_.job()->peers().record_of(rank, limit_of_question());
      static_cast<void>(agree(endpoint::record_key(rank), record.to_text()));
      joined_->job()->report_ended(rank);
    }
  }

  /// False where a member was lost before it had seen the list.
  [[nodiscard]] bool confirm(const deadline& limit) {
    for (;;) {
      if (has(keys::outcome)) return store_->get(keys::outcome, limit_of_question()) == "formed";
      bool all_ready = true;
      bool lost = limit.passed();
      for (const int rank : members_) {
        if (has(keys::ready_as(rank))) continue;
        all_ready = false;
        lost |= is_gone(rank, members_);
      }
      if (all_ready || lost) {
        return agree(keys::outcome, all_ready ? "formed" : "again") == "formed";
      }
      std::this_thread::sleep_for(pause);
    }
  }

  endpoint& former_;
  std::shared_ptr<store> store_;  ///< the part of the round
  std::shared_ptr<endpoint> joined_;
  std::vector<int> members_;
};

}  // namespace parx::detail
