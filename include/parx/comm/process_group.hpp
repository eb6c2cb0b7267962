// process_group: a set of ranks that communicate.
//
// The one invariant: every rank of a group issues the same collectives in the same order. It is
// checked on the wire; a violation is an exception on every rank that names both calls. The first
// failure closes the group on all ranks: later calls throw errc::closed, and the job must be
// restarted to go on.
// Threads: use a group from one thread at a time; different groups from different threads are fine.
// A thread that begins a call while another is in one is refused with a usage_error (as far as
// detail/progress/sole_user.hpp can see that).
// abort() may come from any thread. A process that is forked from a rank is no rank: to use its
// copies of the groups is a usage_error, and to drop them, or to exit, does nothing to the rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/options.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

class process_group;
struct shared_area;
class transport;

namespace detail {

class group_core;

[[nodiscard]] const group_options& checked(const group_options& options);

/// What the operations of comm work on; no other chapter calls it. Throws usage_error in a process
/// that was forked from the rank's.
[[nodiscard]] const std::shared_ptr<group_core>& core_of(const process_group& group);

/// Collective: `bytes` a rank, within the group's timeout.
[[nodiscard]] std::shared_ptr<const shared_area> share_memory(process_group& group,
                                                              std::size_t bytes);

}  // namespace detail

class process_group {
 public:
  /// A group over a transport that already joins its ranks. init() is the usual way to get one.
  /// Throws usage_error for a timeout that is none.
  explicit process_group(std::unique_ptr<transport> network, std::string name = "world",
                         group_options options = {});
  process_group(process_group&&) noexcept = default;
  process_group& operator=(process_group&&) noexcept = default;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] const std::string& name() const noexcept;

  /// Bytes this rank's collectives and messages have sent and received so far, headers (64 bytes a
  /// link, direction and operation) included.
  [[nodiscard]] std::size_t bytes_sent() const noexcept;
  [[nodiscard]] std::size_t bytes_received() const noexcept;

  /// Seconds for which asynchronous collectives have run on this rank so far. What of it the
  /// program did not wait for was hidden behind its computation.
  [[nodiscard]] double async_seconds() const noexcept;

  /// The host of each rank, numbered from 0 in the order of their first ranks. Equal on all ranks.
  /// May ask the job's store the first time.
  [[nodiscard]] std::vector<int> hosts() const;
  /// Whether all ranks see each other's shared buffers (allocate_shared). Equal on all ranks.
  [[nodiscard]] bool shares_memory() const;

  /// Local. A group of `ranks` (of this group, in the order of their new ranks). Only the members
  /// call it, each with the same list; it costs no connection until it is used.
  [[nodiscard]] process_group subgroup(std::span<const int> ranks, subgroup_options options = {},
                                       call_site site = call_site::current()) const;

  /// Makes the group unusable on every rank of the job, which are given `reason`. Does nothing in a
  /// process that was forked from the rank's.
  void abort(std::string_view reason);
  /// Whether a failure or abort() has closed this group.
  [[nodiscard]] bool closed() const;

  /// With progress_mode::inline_poll: moves the asynchronous operations of all this thread's groups
  /// on, without waiting. Call it between pieces of computation.
  void poll();

 private:
  friend const std::shared_ptr<detail::group_core>& detail::core_of(const process_group&);

  explicit process_group(std::shared_ptr<detail::group_core> core) : core_(std::move(core)) {}

  /// `base` follows from the members alone, so that their names for the group may differ.
  [[nodiscard]] process_group derive(std::span<const int> ranks, std::uint64_t base,
                                     const std::string& name) const;

  std::shared_ptr<detail::group_core> core_;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/comm/detail/process_group_impl.hpp>
#endif
