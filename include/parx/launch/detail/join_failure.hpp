// join_failure: what a rank says that could not join its job.
#pragma once

#include <exception>
#include <string>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/launch/launcher.hpp>
#include <parx/store/store_error.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr const char* rendezvous_name = "rendezvous";  // in error_context::operation

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
  [[nodiscard]] std::string keeper() const {
    return formatted("{}, which keeps the job's store,", to_string(job_->keeper));
  }
  /// -1: it is no rank.
  [[nodiscard]] int keeping_rank() const noexcept {
    return job_->keeper == store_keeper::rank_zero ? 0 : -1;
  }
  [[nodiscard]] std::string end_of_keeper() const {
    return formatted("{} has ended or was killed; see its output", keeper());
  }
  [[nodiscard]] std::string silence_of_keeper() const {
    return formatted("{} does not answer; is its process stopped?", keeper());
  }
  /// For a handler of `failure`: names the process because of which the store did not serve.
  [[noreturn]] void blame_keeper(const store_error& failure, const deadline& limit) const {
    const errc code = failure.code_value();
    if (job_->hosts_store() || (code != errc::peer_lost && code != errc::timeout)) throw;
    const bool is_silent = code == errc::timeout;
    throw error(is_silent ? errc::rendezvous_failed : code,
                not_joined(is_silent ? silence_of_keeper() : end_of_keeper()),
                context(limit, keeping_rank()), std::current_exception());
  }

 private:
  const launch_env* job_;
};

}  // namespace parx::detail
