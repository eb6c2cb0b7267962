// generation_ranks: the ranks of one generation, as the coordinator numbers them, and their store.
// Where ranks go on after losses, it knows who has ended.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/parxrun/nodes/generation.hpp"
#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/launch/detail/job_keys.hpp>
#include <parx/store/prefix.hpp>
#include <parx/store/tcp.hpp>
#include <parx/store/tcp_server.hpp>

namespace parx::inline PARX_ABI::detail {

struct kept_store_options {
  std::string address;  ///< at which it listens, at a free port; empty: all of this host
  std::string run_id;
  std::optional<job_key> key;  ///< none where the job has no secret
};

/// The store of one generation in the coordinator's process: where there may be several, or ranks
/// go on after losses. It outlives every rank. The coordinator, which hears of the end of each,
/// uses it for what no rank can see: a rank that has ended before it had joined, and one that still
/// runs though the others have gone on without it.
class kept_store {
 public:
  /// Throws errc::io where it cannot listen.
  explicit kept_store(kept_store_options options)
      : options_(std::move(options)),
        server_({.address = options_.address,
                 .port = 0,
                 .key = options_.key,
                 .presence_keys = presence_keys(options_.run_id)}) {}

  [[nodiscard]] std::uint16_t port() const noexcept { return server_.port(); }

  /// `rank` has ended, as `how` says. If not all ranks have joined by now, they never will: the
  /// others are told so. Returns the ranks that go on since the last loss; nullopt before one.
  [[nodiscard]] std::optional<std::vector<int>> members_after(int rank,
                                                              const std::string& how) noexcept {
    ask([&, this](store& part, const deadline& limit) {
      if (!part.check(std::vector<std::string>{keys::ready}, limit)) {
        part.compare_set(
            first_failure_key, "",
            to_text(loss_of(
                rank, "rendezvous",
                formatted("rank {} ended ({}) before all ranks had joined the job", rank, how))),
            limit);
      }
      while (rounds_over(part, limit)) ++rounds_;
    });
    return members_;
  }

  /// Ranks whose host may not answer any more are known to have ended, for the reason `why`. The
  /// others need not wait for them.
  void tell_lost(const std::vector<int>& ranks, const std::string& why) noexcept {
    const auto is_member = [&](int rank) {
      return !members_ || std::find(members_->begin(), members_->end(), rank) != members_->end();
    };
    if (std::none_of(ranks.begin(), ranks.end(), is_member)) return;  // they are known to be lost
    ask([&, this](store& part, const deadline& limit) {
      const std::string text = formatted("rank {} is lost: {}", ranks.front(), why);
      // In the group of all ranks, or in that of those who have gone on after the last loss.
      prefix_store round(keys::round_prefix(rounds_), part);
      store& present = rounds_ == 0 ? part : static_cast<store&>(round);
      for (const int rank : ranks) present.set(lost_key(rank), "1", limit);
      present.compare_set(first_failure_key, "", to_text(loss_of(ranks.front(), "", text)), limit);
    });
  }

 private:
  [[nodiscard]] static failure_record loss_of(int rank, const std::string& operation,
                                              const std::string& text) {
    failure_record lost = record_of(nullptr, -1);
    lost.code = errc::peer_lost;
    lost.blamed = rank;
    lost.operation = operation;
    lost.group = "world";
    lost.text = text;
    return lost;
  }

  /// Calls use(the job's part of the store, deadline).
  template <typename Use>
  void ask(Use use) const noexcept {
    try {
      const auto limit = deadline::after(std::chrono::seconds(1));
      const std::string host = options_.address.empty() ? loopback_address() : options_.address;
      tcp_store whole({.host = host, .port = server_.port(), .key = options_.key}, limit);
      prefix_store part(job_prefix(options_.run_id), whole);
      use(part, limit);
    } catch (const std::exception&) {
      // Out of memory or descriptors: the ranks wait for their own deadlines.
    }
  }

  /// Whether the next round of agreement is over (see survivors.hpp); keeps its outcome.
  [[nodiscard]] bool rounds_over(store& job_store, const deadline& limit) {
    prefix_store round(keys::round_prefix(rounds_ + 1), job_store);
    if (!round.check(std::vector<std::string>{keys::outcome}, limit)) return false;
    if (round.get(keys::outcome, limit) == "formed") {
      members_ = ranks_from(round.get(keys::members, limit));
    }
    return true;
  }

  const kept_store_options options_;
  tcp_store_server server_;
  int rounds_ = 0;  ///< rounds of agreement that are over
  std::optional<std::vector<int>> members_;
};

class generation_ranks {
 public:
  /// `members` are the agents in the order of their ranks, and how many each has; without `options`
  /// rank 0 keeps the store. Throws errc::io.
  generation_ranks(std::optional<kept_store_options> options,
                   const std::vector<std::pair<agent_number, int>>& members) {
    if (options) store_.emplace(std::move(*options));
    for (const auto& [agent, count] : members) {
      std::vector<int>& ranks = of_[agent];
      for (int i = 0; i < count; ++i) ranks.push_back(world_size_++);
    }
  }

  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  /// Of a member.
  [[nodiscard]] int first_rank(agent_number agent) const { return of_.at(agent).front(); }
  [[nodiscard]] std::uint16_t store_port() const noexcept { return store_ ? store_->port() : 0; }

  /// `rank` has ended, as `how` says. True if those that went on after the last loss have all
  /// ended: a rank that hung or was stopped while they went on without it can only be ended.
  [[nodiscard]] bool leaves_none(int rank, const std::string& how) {
    ended_.insert(rank);
    const auto members = store_->members_after(rank, how);
    return members && std::all_of(members->begin(), members->end(),
                                  [&](int each) { return ended_.contains(each); });
  }
  /// A member is lost, and its ranks have certainly ended. True as above.
  [[nodiscard]] bool lose(agent_number agent, const std::string& why) {
    const auto found = of_.find(agent);
    if (found == of_.end()) return false;
    bool none = false;
    for (const int rank : found->second) none = leaves_none(rank, why);
    store_->tell_lost(found->second, why);
    return none;
  }

 private:
  std::optional<kept_store> store_;
  std::map<agent_number, std::vector<int>> of_;
  int world_size_ = 0;
  std::set<int> ended_;
};

}  // namespace parx::detail
