// kept_store: the job's store in parxrun's process, where the ranks go on after losses.
//
// It outlives every rank. parxrun, which sees the end of each, uses it for what no rank can see: a
// rank that has ended before it had joined, and one that still runs though the others have gone on
// without it.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/launch/detail/job_keys.hpp>
#include <parx/launch/detail/rank_variables.hpp>
#include <parx/store/prefix.hpp>
#include <parx/store/tcp.hpp>
#include <parx/store/tcp_server.hpp>

namespace parx::inline PARX_ABI::detail {

class kept_store {
 public:
  /// Throws errc::io where the job's port cannot be used.
  kept_store(const local_job& job, std::optional<job_key> key)
      : host_(job.host),
        run_id_(job.run_id),
        key_(std::move(key)),
        server_({.address = host_,
                 .port = job.port,
                 .key = key_,
                 .presence_keys = presence_keys(run_id_)}) {}

  /// `rank` has ended, as `how` says. If not all ranks have joined by now, they never will: the
  /// others are told so. Returns the ranks that go on since the last loss; nullopt before one.
  [[nodiscard]] std::optional<std::vector<int>> members_after(int rank,
                                                              const std::string& how) noexcept {
    try {
      const auto limit = deadline::after(std::chrono::seconds(1));
      tcp_store whole({.host = host_, .port = server_.port(), .key = key_}, limit);
      prefix_store part(job_prefix(run_id_), whole);
      if (!part.check(std::vector<std::string>{"ready"}, limit)) {
        failure_record lost = record_of(nullptr, -1);
        lost.code = errc::peer_lost;
        lost.blamed = rank;
        lost.operation = "rendezvous";
        lost.group = "world";
        lost.text = formatted("rank {} ended ({}) before all ranks had joined the job", rank, how);
        part.compare_set(first_failure_key, "", to_text(lost), limit);
      }
      while (rounds_over(part, limit)) ++rounds_;
    } catch (const std::exception&) {
      // Out of memory or descriptors: the ranks wait for their own deadlines.
    }
    return members_;
  }

 private:
  /// Whether the next round of agreement is over (see survivors.hpp); keeps its outcome.
  [[nodiscard]] bool rounds_over(store& job_store, const deadline& limit) {
    prefix_store round(round_prefix(rounds_ + 1), job_store);
    if (!round.check(std::vector<std::string>{"outcome"}, limit)) return false;
    if (round.get("outcome", limit) == "formed") {
      members_ = ranks_from(round.get("members", limit));
    }
    return true;
  }

  const std::string host_;
  const std::string run_id_;
  const std::optional<job_key> key_;
  tcp_store_server server_;
  int rounds_ = 0;  ///< rounds of agreement that are over
  std::optional<std::vector<int>> members_;
};

}  // namespace parx::detail
