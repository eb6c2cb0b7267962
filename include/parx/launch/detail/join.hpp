// join: how a process becomes a rank of its job: it opens the job's store, claims its rank there,
// and agrees with the others on what job it is; and what it says where it cannot.
#pragma once

#include <unistd.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hmac.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/launch/detail/job_keys.hpp>
#include <parx/launch/detail/store_generation.hpp>
#include <parx/launch/launch_env.hpp>
#include <parx/store/prefix.hpp>
#include <parx/store/store_error.hpp>
#include <parx/store/tcp.hpp>
#include <parx/store/tcp_server.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr const char* rendezvous_name = "rendezvous";  // in error_context::operation

/// The name of the file that this process runs, without its folder.
[[nodiscard]] inline std::string program_name() {
  char path[4096];
  const auto length = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string name(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  return name.substr(name.find_last_of('/') + 1);
}

class join_failure {
 public:
  /// The job is borrowed.
  explicit join_failure(const launch_env& job) noexcept : job_(&job) {}

  [[nodiscard]] error_context context(const deadline& limit, int blamed = -1) const {
    return {.operation = rendezvous_name,
            .group = "world",
            .sequence = 0,
            .rank = job_->rank,
            .peer = blamed,
            .host = job_->master_host,
            .elapsed_seconds = limit.elapsed_seconds()};
  }
  [[noreturn]] void fail(errc code, const deadline& limit, const std::string& reason,
                         int blamed = -1) const {
    throw error(code, not_joined(reason), context(limit, blamed));
  }
  [[nodiscard]] std::string not_joined(const std::string& reason) const {
    return formatted("rank {} of {} could not join the job at {}: {}", job_->rank, job_->world_size,
                     place(), reason);
  }

  [[nodiscard]] std::string place() const {
    return with_port(job_->master_host, job_->master_port);
  }
  /// The process that keeps the job's store.
  [[nodiscard]] std::string store_host_name() const {
    return formatted("{}, which keeps the job's store,", to_string(job_->hosted_by));
  }
  /// -1: it is no rank.
  [[nodiscard]] int keeping_rank() const noexcept {
    return job_->hosted_by == store_host::rank_zero ? 0 : -1;
  }
  [[nodiscard]] std::string end_of_store_host() const {
    return formatted("{} has ended or was killed; see its output", store_host_name());
  }
  [[nodiscard]] std::string silence_of_store_host() const {
    return formatted("{} does not answer; is its process stopped?", store_host_name());
  }
  /// For a handler of `failure`: names the process because of which the store did not serve.
  [[noreturn]] void throw_lost_store(const store_error& failure, const deadline& limit) const {
    const errc code = failure.code_value();
    if (job_->hosts_store() || (code != errc::peer_lost && code != errc::timeout)) throw;
    const bool is_silent = code == errc::timeout;
    throw error(is_silent ? errc::rendezvous_failed : code,
                not_joined(is_silent ? silence_of_store_host() : end_of_store_host()),
                context(limit, keeping_rank()), std::current_exception());
  }

 private:
  const launch_env* job_;
};

/// Null where the job has no secret.
[[nodiscard]] inline std::optional<job_key> key_of(const launch_env& job) {
  if (job.secret.empty()) return std::nullopt;
  return job_key(job.secret, job.run_id, job.encrypts);
}

/// A client of the job's store.
struct store_of_job {
  tcp_store whole;
  prefix_store part;

  [[gnu::cold]] store_of_job(const launch_env& job, const deadline& limit)
      : whole(where(job), limit), part(job_prefix(job.run_id), whole) {}

  [[nodiscard]] static tcp_store_options where(const launch_env& job) {
    tcp_store_options options{job.master_host, job.master_port};
    options.key = key_of_store(job);
    // Rank 0 listens and serves, or it has ended because another program has the port.
    if (job.hosted_by == store_host::rank_zero) options.silence = std::chrono::seconds(15);
    return options;
  }
  /// torchrun's store is PyTorch's own, which does not support a key.
  [[nodiscard]] static std::optional<job_key> key_of_store(const launch_env& job) {
    return job.hosted_by == store_host::agent ? std::nullopt : key_of(job);
  }
};

/// What this process has in the job's store, and on the rank that keeps the store its server.
class joined_job {
 public:
  explicit joined_job(const launch_env& job) : job_(job) {}
  joined_job(const joined_job&) = delete;
  joined_job& operator=(const joined_job&) = delete;

  [[gnu::cold]] void open_store(const deadline& limit) {
    try {
      if (job_.share_line) {
        learn_address(limit);
      } else if (job_.hosts_store()) {
        serve(limit);
      }
      if (job_.hosted_by == store_host::agent) {
        start_.emplace(store_of_job::where(job_), job_.run_id, job_.rank, limit);
        job_.run_id += "." + start_->number();
      }
      // An aliasing pointer: an owner of the job's part also owns the store below it.
      store_ = std::make_shared<store_of_job>(job_, limit);
      part_ = {store_, &store_->part};
    } catch (const error& failure) {
      if (failure.code_value() == errc::io) throw;
      throw error(errc::rendezvous_failed,
                  formatted("rank {} of {} (started by {}) could not join the job", job_.rank,
                            job_.world_size, to_string(job_.started_by)),
                  failures_.context(limit), std::current_exception());
    }
  }
  /// To be called right after open_store(): a process that joins a running job under a rank that is
  /// taken must not end it.
  [[gnu::cold]] void claim_rank(const deadline& limit) {
    try {
      const std::string mine = formatted("pid {} on {}", ::getpid(), host_name());
      const std::string holder = part_->compare_set(keys::claim(job_.rank), "", mine, limit);
      if (holder == mine) return;
      throw error(errc::mismatch,
                  formatted("rank {} of {} is taken: {} has joined this job as that rank. Two "
                            "processes were given the same rank, or two jobs share {}; give "
                            "each job its own MASTER_PORT",
                            job_.rank, job_.world_size, printable(holder), failures_.place()),
                  failures_.context(limit));
    } catch (const store_error& failure) {
      failures_.throw_lost_store(failure, limit);
    }
  }
  /// Compares with the first rank what all must have alike.
  [[gnu::cold]] void agree(const deadline& limit) {
    agree_on(keys::world_size, std::to_string(job_.world_size), "a world size of", limit);
    agree_on(keys::program, program_name(), "the program", limit);
  }

  /// On rank 0, until all have come, in a store that outlives the starts: tells the others which
  /// start this is. Returns whether that is so.
  [[gnu::cold]] bool answer_others(std::chrono::seconds patience) {
    if (job_.rank != 0 || !start_) return false;
    start_->answer(deadline::after(patience));
    return true;
  }
  void forget_start() noexcept { start_.reset(); }

  /// The job; its run_id is that of this start.
  [[nodiscard]] const launch_env& job() const noexcept { return job_; }
  [[nodiscard]] const join_failure& failures() const noexcept { return failures_; }
  /// The job's part of the store; null after close_store().
  [[nodiscard]] const std::shared_ptr<store>& part() const noexcept { return part_; }
  /// The program may still have the store, whose connection would count as a client.
  [[gnu::cold]] void close_store() {
    part_.reset();
    if (store_ != nullptr) store_->whole.close();
    store_.reset();
  }
  /// None where another process keeps the store.
  [[nodiscard]] std::optional<tcp_store_server>& server() noexcept { return server_; }

 private:
  /// Fills in the store's address and this start's part of the secret: from rank 0, which listens.
  [[gnu::cold]] void learn_address(const deadline& limit) {
    std::string line;
    if (job_.rank == 0) {
      const std::string fresh = why_no_hmac().empty() ? random_hex() : "";
      job_.secret += fresh;
      serve(limit);
      line = formatted("{}@{}", fresh, with_port(job_.master_host, server_->port()));
    }
    line = job_.share_line(line);
    const auto end = line.find('@');
    const auto address = split_address(line.substr(end == std::string::npos ? 0 : end + 1));
    if (end == std::string::npos || !address || !address->port) {
      failures_.fail(errc::protocol, limit,
                     "the line that all ranks were given does not say where rank 0 is");
    }
    if (job_.rank != 0) job_.secret += line.substr(0, end);
    job_.master_host = address->host;
    job_.master_port = *address->port;
  }
  [[gnu::cold]] void serve(const deadline& limit) {
    try {
      server_.emplace(
          tcp_store_server_options{.address = narrowest_address(job_.master_host),
                                   .port = job_.master_port,
                                   .key = store_of_job::key_of_store(job_),
                                   .presence_keys = presence_keys(job_.run_id)});
    } catch (const error& failure) {
      error_context where = failures_.context(limit);
      where.advice = failure.context().advice;
      if (where.advice.empty()) where.advice = where_the_port_is_from();
      throw error(failure.code_value(),
                  formatted("rank 0 of {} cannot keep the job's store", job_.world_size),
                  std::move(where), std::current_exception());
    }
  }
  [[nodiscard]] std::string where_the_port_is_from() const {
    if (job_.port_variable.empty()) {
      return "The port was made from the job's number: set MASTER_PORT, the same for all ranks, to "
             "choose another";
    }
    return formatted("The port is that of {}: set another there, the same for all ranks",
                     job_.port_variable);
  }
  [[gnu::cold]] void agree_on(const char* key, const std::string& mine, const char* what,
                              const deadline& limit) {
    const std::string value = formatted("{}\n{}", mine, job_.rank);
    const std::string first = part_->compare_set(key, "", value, limit);
    const auto end = first.find('\n');
    if (first.substr(0, end) == mine) return;
    failures_.fail(
        errc::mismatch, limit,
        formatted("it has {} {}, but rank {} has {}. All ranks of a job must be started alike; "
                  "is another job using this address and port?",
                  what, mine, end == std::string::npos ? "?" : printable(first.substr(end + 1)),
                  printable(first.substr(0, end))));
  }

  launch_env job_;
  const join_failure failures_{job_};
  std::optional<store_generation> start_;  ///< in an agent's store, until all have come
  std::optional<tcp_store_server> server_;
  std::shared_ptr<store_of_job> store_;
  std::shared_ptr<store> part_;
};

}  // namespace parx::detail
