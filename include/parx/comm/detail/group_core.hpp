// group_core: the implementation of a process group: what it is, and the two halves of a call.
//
//   arguments --issuer--> call --progress--> bytes
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <parx/comm/detail/issue/issuer.hpp>
#include <parx/comm/detail/progress/concurrent_use.hpp>
#include <parx/comm/detail/progress/progress.hpp>
#include <parx/core/error.hpp>
#include <parx/core/own_process.hpp>

namespace parx::inline PARX_ABI::detail {

class group_core {
 public:
  group_core(std::unique_ptr<links> network, std::string name, std::uint64_t id,
             group_options options, std::shared_ptr<groups_of_rank> siblings)
      : network_(std::move(network)),
        name_(std::move(name)),
        id_(id),
        options_(options),
        progress_(*network_, name_, id_, options_, std::move(siblings)),
        issuer_(network_->rank(), network_->size(), options_.choice) {}

  /// False in a process that was forked from the rank's.
  [[nodiscard]] bool is_here() const noexcept { return process_.is_this(); }
  /// Throws usage_error in a forked process: it has the rank's sockets and memory, but no threads.
  void require_here() const {
    if (is_here()) [[likely]]
      return;
    throw_usage(
        "group \"{}\" belongs to the process of rank {}, and this one was forked from it: "
        "only the rank may communicate. Let the forked process hand its results to the "
        "rank, or exec a program that joins a job of its own",
        name_, rank());
  }

  [[nodiscard]] links& network() noexcept { return *network_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] const group_options& options() const noexcept { return options_; }
  [[nodiscard]] int rank() const noexcept { return network_->rank(); }
  [[nodiscard]] int size() const noexcept { return network_->size(); }

  [[nodiscard]] detail::progress& progress() noexcept { return progress_; }
  [[nodiscard]] const detail::progress& progress() const noexcept { return progress_; }
  [[nodiscard]] detail::issuer& issuer() noexcept { return issuer_; }

  /// The calling thread is in a call while the returned value exists. Throws usage_error while
  /// another thread is in one.
  [[nodiscard]] concurrent_use::guard enter(operation what, const call_site& site) {
    return concurrent_use::guard(user_, [&] {
      throw_usage(
          "{} on group \"{}\" at {}: another thread is in a call of this group. A group "
          "is used by one thread at a time: give each thread one of its own, by split() or "
          "subgroup(), or let them take turns",
          name_of(what), name_, site);
    });
  }

  /// Collective: memory that the ranks of a host share.
  [[nodiscard]] std::shared_ptr<const shared_area> share(std::size_t bytes, deadline limit) {
    try {
      return issuer_.areas().make(*network_, bytes, limit);
    } catch (const error& refused) {
      // Otherwise the other ranks would wait for this one.
      progress_.abort(formatted("rank {} could not share memory: {}", network_->job_rank(rank()),
                                text_of(refused)));
      throw;
    }
  }

  /// Counts the groups made with `key`: equal on all ranks that make them in the same order.
  [[nodiscard]] std::uint64_t next_group_number(std::uint64_t key) { return ++made_groups_[key]; }

 private:
  const own_process process_;
  const std::unique_ptr<links> network_;
  const std::string name_;
  const std::uint64_t id_;
  const group_options options_;
  concurrent_use user_;
  detail::progress progress_;
  detail::issuer issuer_;
  std::map<std::uint64_t, std::uint64_t> made_groups_;  ///< key, number made
};

}  // namespace parx::detail
