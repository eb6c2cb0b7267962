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
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/abort_reason.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/thread_count.hpp>
#include <parx/launch/detail/gathering.hpp>
#include <parx/launch/detail/job_keys.hpp>
#include <parx/launch/detail/join_failure.hpp>
#include <parx/launch/detail/numbered_start.hpp>
#include <parx/launch/detail/program_name.hpp>
#include <parx/launch/detail/survivors.hpp>
#include <parx/launch/launcher.hpp>
#include <parx/store/prefix.hpp>
#include <parx/store/store_error.hpp>
#include <parx/store/tcp.hpp>
#include <parx/store/tcp_server.hpp>
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
      : job_(job) {
    for (int rank = 0; rank < job.world_size; ++rank) members_.push_back(rank);
    try {
      open_store(limit);
    } catch (const error& failure) {
      if (failure.code_value() == errc::io) throw;
      throw error(errc::rendezvous_failed,
                  formatted("rank {} of {} (started by {}) could not join the job", job.rank,
                            job.world_size, to_string(job.started_by)),
                  failures_.context(limit), std::current_exception());
    }
    // Before all else: a process that joins a running job under a rank that is taken must not end
    // it.
    try {
      claim_rank(limit);
    } catch (const store_error& failure) {
      failures_.blame_keeper(failure, limit);
    }
    try {
      agree_on("world_size", std::to_string(job.world_size), "a world size of", limit);
      agree_on("program", detail::program_name(), "the program", limit);
      detail::endpoint_options options{
          .job_store = job_store_,
          .store_host = job.master_host,
          .rank = job.rank,
          .world_size = job.world_size,
          .local_world_size = job.local_world_size.value_or(job.world_size),
          .may_spin = std::max(static_cast<int>(allowed_cores().size()), 1) >=
                      job.local_world_size.value_or(job.world_size),
          .env = env,
          .key = key_of(job_)};
      endpoint_.reset(new detail::endpoint(std::move(options), limit));
      prepare();
      detail::gathering all(job_, *job_store_, *endpoint_, start_, failures_);
      all.await_everybody(limit);
      all.meet_everybody(limit);
    } catch (const store_error& failure) {
      // The others can be told only by a store that answers.
      if (failure.code_value() != errc::timeout) tell_others();
      leave(std::chrono::seconds(1));
      failures_.blame_keeper(failure, limit);
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
    if (!server_) take_leave(limit);
    job_store_.reset();
    // The program may still hold the store, whose connection would count as a client.
    if (store_ != nullptr) store_->whole.close();
    store_.reset();
    if (!server_) return;
    try {
      static constexpr std::chrono::milliseconds silence = std::chrono::seconds(5);
      store_of_job last(job_, deadline::after(silence));
      if (!others_have_left(last, deadline::after(std::min(patience, silence))) &&
          patience > silence) {
        log(log_level::info,
            "this rank has finished; it keeps the job's store for the ranks that have not");
        static_cast<void>(others_have_left(last, deadline::after(patience)));
      }
    } catch (const std::exception&) {
      // The store's own server cannot be reached; leave without waiting.
    }
    server_.reset();
  }
  ~rendezvous() { leave(std::chrono::seconds(0)); }

  /// Leaves a job that has failed to start, and tells the others of the exception that is being
  /// handled.
  [[gnu::cold]] void leave_in_failure() noexcept {
    tell_others();
    if (server_) await_latecomers(deadline::after(std::chrono::seconds(1)));
    leave(std::chrono::seconds(1));  // time for the others to read the reason
  }

  /// Collective over the surviving ranks, after a loss: aborts the present groups and returns the
  /// ranks that go on, by their numbers in the job. connect() then joins these. Throws parx::error
  /// where the job's store is gone, or where the others went on without this rank.
  [[nodiscard]] const std::vector<int>& shrink(std::chrono::milliseconds patience) {
    endpoint_->job()->abort(
        {.text = formatted("rank {} goes on with the ranks that are left", job_.rank)});
    try {
      detail::survivors agreed(job_store_, *endpoint_, rounds_, patience);
      former_.push_back(std::exchange(endpoint_, agreed.joined()));
      members_ = agreed.members();
    } catch (const error&) {
      const bool depends_on_0 = !server_ && job_.keeper == store_keeper::rank_zero;
      if (!depends_on_0 || !endpoint_->job()->has_ended(0)) throw;
      throw error(errc::peer_lost,
                  formatted("rank {} cannot go on: rank 0, which has ended or was killed, kept "
                            "the job's store, by which the ranks that are left would agree. A "
                            "store that outlives every rank is that of parxrun --on-loss "
                            "continue or of torchrun (TORCHELASTIC_USE_AGENT_STORE)",
                            job_.rank),
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
  [[nodiscard]] const launch_env& job() const noexcept { return job_; }

  /// The links among all ranks of the job.
  [[nodiscard, gnu::cold]] std::unique_ptr<links> connect() {
    return std::unique_ptr<links>(new hybrid_links(endpoint_));
  }
  /// The job's part of the store, also for the program's own keys.
  [[nodiscard]] const std::shared_ptr<store>& job_store() const noexcept { return job_store_; }

 private:
  struct store_of_job {
    tcp_store whole;
    prefix_store part;

    [[gnu::cold]] store_of_job(const launch_env& job, const deadline& limit)
        : whole(where(job), limit), part(detail::job_prefix(job.run_id), whole) {}
  };
  [[nodiscard]] static tcp_store_options where(const launch_env& job) {
    tcp_store_options options{job.master_host, job.master_port};
    options.key = key_of_store(job);
    // Rank 0 listens and serves, or it has ended because another program has the port.
    if (job.keeper == store_keeper::rank_zero) options.silence = std::chrono::seconds(15);
    return options;
  }
  /// torchrun's store is PyTorch's own, which does not support a key.
  [[nodiscard]] static std::optional<job_key> key_of_store(const launch_env& job) {
    return job.keeper == store_keeper::agent ? std::nullopt : key_of(job);
  }
  [[nodiscard]] static std::optional<job_key> key_of(const launch_env& job) {
    if (job.secret.empty()) return std::nullopt;
    return job_key(job.secret, job.run_id, job.encrypts);
  }

  /// Counts the ranks that leave: open connections do not tell, as other clients may have some.
  [[gnu::cold]] void take_leave(const deadline& limit) noexcept {
    if (job_store_ == nullptr || job_.keeper != store_keeper::rank_zero) return;
    try {
      const auto others = static_cast<int>(members_.size()) - 1;
      if (job_store_->add(formatted("leavers/{}", rounds_), 1, limit) == others) {
        job_store_->set("all left", "1", limit);
      }
    } catch (const std::exception&) {
      // The store is gone.
    }
  }
  [[nodiscard, gnu::cold]] bool others_have_left(store_of_job& last, const deadline& limit) const {
    const std::vector<std::string> key{"all left"};
    do {
      const auto next_look = deadline::after(std::min(limit.remaining(), deadline::duration(50)));
      if (server_->wait_for_leavers(1, next_look)) return true;  // 1: `last` itself
      if (last.part.check(key, deadline::after(std::chrono::seconds(1)))) return true;
    } while (!limit.passed());
    return false;
  }

  /// Aborts the job with the exception that is being handled, unless another rank has done so.
  [[gnu::cold]] void tell_others() noexcept {
    try {
      failure_record record = record_of(std::current_exception(), job_.rank);
      if (record.operation != detail::rendezvous_name)
        record.text = formatted("rank {}: {}", job_.rank, record.text);
      if (job_.rank == 0 && start_) start_->answer(deadline::after(std::chrono::seconds(1)));
      auto limit = deadline::after(std::chrono::seconds(2));
      if (endpoint_ != nullptr && endpoint_->job()->store().is_silent()) {
        limit = endpoint_->job()->store().parting_deadline();
      }
      job_store_->compare_set(first_failure_key, "", to_text(record), limit);
    } catch (const std::exception&) {
      // The store is gone, and its clients notice that by themselves.
    }
  }

  /// Waits for ranks that are still starting, which could not read the reason from a closed store.
  void await_latecomers(const deadline& limit) noexcept {
    try {
      std::vector<std::string> claims;
      for (int rank = 0; rank < job_.world_size; ++rank) claims.push_back(detail::claim_key(rank));
      job_store_->wait(claims, limit);
    } catch (const std::exception&) {
      // They did not come.
    }
  }

  [[gnu::cold]] void open_store(const deadline& limit) {
    if (job_.hosts_store()) {
      try {
        server_.emplace(
            tcp_store_server_options{.address = detail::narrowest_address(job_.master_host),
                                     .port = job_.master_port,
                                     .key = key_of_store(job_),
                                     .presence_keys = detail::presence_keys(job_.run_id)});
      } catch (const error& failure) {
        error_context where = failures_.context(limit);
        where.advice = failure.context().advice;
        if (where.advice.empty()) where.advice = where_the_port_is_from();
        throw error(failure.code_value(),
                    formatted("rank 0 of {} cannot keep the job's store", job_.world_size),
                    std::move(where), std::current_exception());
      }
    }
    if (job_.keeper == store_keeper::agent) {
      start_.emplace(where(job_), job_.run_id, job_.rank, limit);
      job_.run_id += "." + start_->number();
    }
    // An aliasing pointer: an owner of the job's part also owns the store below it.
    store_ = std::make_shared<store_of_job>(job_, limit);
    job_store_ = {store_, &store_->part};
  }
  [[nodiscard]] std::string where_the_port_is_from() const {
    if (job_.port_variable.empty()) {
      return "The port was made from the job's number: set MASTER_PORT, the same for all ranks, to "
             "choose another";
    }
    return formatted("The port is that of {}: set another there, the same for all ranks",
                     job_.port_variable);
  }

  [[gnu::cold]] void agree_on(const std::string& key, const std::string& mine, const char* what,
                              const deadline& limit) {
    const std::string value = formatted("{}\n{}", mine, job_.rank);
    const std::string first = job_store_->compare_set(key, "", value, limit);
    const auto end = first.find('\n');
    if (first.substr(0, end) == mine) return;
    failures_.fail(
        errc::mismatch, limit,
        formatted("it has {} {}, but rank {} has {}. All ranks of a job must be started alike; "
                  "is another job using this address and port?",
                  what, mine, end == std::string::npos ? "?" : printable(first.substr(end + 1)),
                  printable(first.substr(0, end))));
  }

  [[gnu::cold]] void claim_rank(const deadline& limit) {
    const std::string mine = formatted("pid {} on {}", ::getpid(), detail::host_name());
    const std::string holder =
        job_store_->compare_set(detail::claim_key(job_.rank), "", mine, limit);
    if (holder == mine) return;
    throw error(errc::mismatch,
                formatted("rank {} of {} is taken: {} has joined this job as that rank. Two "
                          "processes were given the same rank, or two jobs share {}; give "
                          "each job its own MASTER_PORT",
                          job_.rank, job_.world_size, printable(holder), failures_.place()),
                failures_.context(limit));
  }

  launch_env job_;
  const detail::join_failure failures_{job_};
  std::optional<detail::numbered_start> start_;  ///< in an agent's store, until all have come
  std::optional<tcp_store_server> server_;       ///< where this rank keeps the job's store
  std::shared_ptr<store_of_job> store_;
  std::shared_ptr<store> job_store_;  ///< the job's part of store_
  std::shared_ptr<detail::endpoint> endpoint_;
  std::vector<std::shared_ptr<detail::endpoint>> former_;  ///< from before each loss
  int rounds_ = 0;            ///< rounds of agreement so far, see survivors.hpp
  std::vector<int> members_;  ///< see members()
};

}  // namespace parx
