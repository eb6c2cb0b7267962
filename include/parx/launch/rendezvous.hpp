// rendezvous: from "I am rank 3 of 8" to the links among all eight ranks.
//
// The job's keys in the store have the prefix parx/<run id>/, so that two jobs can use one store.
// Where the job has a secret, its store serves only clients that prove to know it. No rank
// continues before all have arrived. Missing ranks are named in a warning after five seconds and in
// the error at the deadline. A rank that fails before that tells the others why. The end of a rank
// that is killed is noticed by rank 0: by the end of its connection with the store, and once it
// listens by a probe. Rank 0 keeps the store long enough for the others to read why the job ends.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/thread_count.hpp>
#include <parx/launch/detail/arrival.hpp>
#include <parx/launch/detail/departure.hpp>
#include <parx/launch/detail/join.hpp>
#include <parx/launch/detail/survivors.hpp>
#include <parx/launch/launch_env.hpp>
#include <parx/store/store.hpp>
#include <parx/store/store_error.hpp>
#include <parx/transport/hybrid.hpp>

namespace parx::inline PARX_ABI {

/// A rank's membership of its job. Operations of groups that outlive it end with an error.
class rendezvous {
 public:
  /// Collective over the job: returns when all ranks have arrived. `prepare` is called as soon as
  /// the other ranks can be told of a failure: an exception from it ends the job. Throws
  /// parx::error where ranks do not arrive before `limit`, or disagree about the job.
  [[gnu::cold]] rendezvous(const launch_env& job, const environment& env, deadline limit,
                           const std::function<void()>& prepare)
      : joined_(job) {
    for (int rank = 0; rank < job.world_size; ++rank) members_.push_back(rank);
    joined_.open_store(limit);
    joined_.claim_rank(limit);
    try {
      joined_.agree(limit);
      endpoint_.reset(new detail::endpoint(endpoint_options(env), limit));
      prepare();
      detail::all_arrivals all(joined_, *endpoint_);
      all.await_everybody(limit);
      all.read_all_peers(limit);
    } catch (const store_error& failure) {
      // The others can be told only by a store that answers.
      if (failure.code_value() != errc::timeout) departure_.tell_others(endpoint_.get());
      leave(std::chrono::seconds(1));
      joined_.failures().throw_lost_store(failure, limit);
    } catch (...) {
      leave_in_failure();
      throw;
    }
  }

  rendezvous(const rendezvous&) = delete;
  rendezvous& operator=(const rendezvous&) = delete;

  /// Leaves the job. The rank that keeps the store waits until the others have left or `patience`
  /// has passed, so that they can finish their requests. It does not wait for other clients.
  [[gnu::cold]] void leave(std::chrono::milliseconds patience) noexcept {
    const deadline limit = endpoint_ != nullptr ? endpoint_->job()->store().parting_deadline()
                                                : deadline::after(std::chrono::seconds(1));
    if (endpoint_ != nullptr) endpoint_->job()->leave();
    endpoint_.reset();
    for (const auto& each : former_) each->job()->leave();
    former_.clear();
    departure_.sign_off(static_cast<int>(members_.size()), rounds_, limit);
    joined_.close_store();
    departure_.await_others(patience);
  }
  ~rendezvous() { leave(std::chrono::seconds(0)); }

  /// Leaves a job that has failed to start, and tells the others of the exception that is being
  /// handled.
  [[gnu::cold]] void leave_in_failure() noexcept {
    departure_.tell_others(endpoint_.get());
    departure_.await_latecomers(deadline::after(std::chrono::seconds(1)));
    leave(std::chrono::seconds(1));  // time for the others to read the reason
  }

  /// Collective over the surviving ranks, after a loss: aborts the present groups and returns the
  /// ranks that go on, by their numbers in the job. connect() then joins these. Throws parx::error
  /// where the job's store is gone, or where the others went on without this rank.
  [[nodiscard]] const std::vector<int>& shrink(std::chrono::milliseconds patience) {
    endpoint_->job()->abort(
        {.text = formatted("rank {} goes on with the ranks that are left", job().rank)});
    try {
      detail::survivors agreed(job_store(), *endpoint_, rounds_, patience);
      former_.push_back(std::exchange(endpoint_, agreed.joined()));
      members_ = agreed.members();
    } catch (const error&) {
      const bool depends_on_0 = !joined_.server() && job().hosted_by == store_host::rank_zero;
      if (!depends_on_0 || !endpoint_->job()->has_ended(0)) throw;
      throw error(errc::peer_lost,
                  formatted("rank {} cannot go on: rank 0, which has ended or was killed, kept "
                            "the job's store, by which the ranks that are left would agree. A "
                            "store that outlives every rank is that of parxrun --on-loss "
                            "continue or of torchrun (TORCHELASTIC_USE_AGENT_STORE)",
                            job().rank),
                  {}, std::current_exception());
    }
    return members_;
  }
  /// The ranks that go on, in ascending order; before a shrink() all.
  [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }
  [[nodiscard]] int times_shrunk() const noexcept { return static_cast<int>(former_.size()); }
  /// Whether there was a shrink() and none of its ranks has failed since.
  [[nodiscard]] bool goes_on() const {
    return !former_.empty() && endpoint_ != nullptr && !endpoint_->job()->abort_reason();
  }
  void abort(const failure_record& reason) noexcept { endpoint_->job()->abort(reason); }
  /// The job; its run_id is that of this start.
  [[nodiscard]] const launch_env& job() const noexcept { return joined_.job(); }

  /// The links among all ranks of the job.
  [[nodiscard, gnu::cold]] std::unique_ptr<links> connect() {
    return std::unique_ptr<links>(new hybrid_links(endpoint_));
  }
  /// The job's part of the store, also for the program's own keys.
  [[nodiscard]] const std::shared_ptr<store>& job_store() const noexcept { return joined_.part(); }

 private:
  [[nodiscard]] detail::endpoint_options endpoint_options(const environment& env) const {
    const int here = job().local_world_size.value_or(job().world_size);
    const int cores = std::max(static_cast<int>(allowed_cores().size()), 1);
    return {.job_store = job_store(),
            .store_host = job().master_host,
            .kept_by = {joined_.failures().keeping_rank(), std::string(to_string(job().hosted_by))},
            .rank = job().rank,
            .world_size = job().world_size,
            .local_world_size = here,
            .may_spin = cores >= here,
            .env = env,
            .key = detail::key_of(job())};
  }

  detail::joined_job joined_;
  detail::departure departure_{joined_};
  std::shared_ptr<detail::endpoint> endpoint_;
  std::vector<std::shared_ptr<detail::endpoint>> former_;  ///< from before each loss
  int rounds_ = 0;            ///< rounds of agreement so far, see survivors.hpp
  std::vector<int> members_;  ///< see members()
};

}  // namespace parx
