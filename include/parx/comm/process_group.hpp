// process_group: a set of ranks that communicate.
//
// Invariant: every rank of a group issues the same collectives in the same order. This is checked
// on the wire; a violation throws on every rank, and the message names both calls. The first
// failure closes the group on all ranks: later calls throw errc::closed, and the job must be
// restarted to go on.
// Threads: use a group from one thread at a time; different groups may be used from different
// threads. A call that begins while another thread is in a call throws usage_error (detected as far
// as detail/progress/concurrent_use.hpp can). abort() may be called from any thread.
// Fork: a process forked from a rank is not a rank. Using its copies of the groups throws
// usage_error; destroying them, or exiting, does not affect the rank.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/options.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

class process_group;
struct shared_area;
class links;

/// The options, if they are possible. Throws usage_error.
[[nodiscard]] const group_options& checked_options(const group_options& options);

namespace detail {

class group_core;

/// The implementation of a group; only comm calls this. Throws usage_error in a process forked from
/// the rank's.
[[nodiscard]] const std::shared_ptr<group_core>& core_of(const process_group& group);

/// Collective: an area with `bytes` per rank, made within the group's timeout.
[[nodiscard]] std::shared_ptr<const shared_area> share_memory(process_group& group,
                                                              std::size_t bytes);

}  // namespace detail

class process_group {
 public:
  /// A group over links that already join its ranks. init() is the usual way to get one.
  /// Throws usage_error if the timeout is not positive.
  explicit process_group(std::unique_ptr<links> network, std::string name = "world",
                         group_options options = {});
  process_group(process_group&&) noexcept = default;
  process_group& operator=(process_group&&) noexcept = default;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] const std::string& name() const noexcept;

  /// Bytes that this rank's collectives and messages have sent and received so far. Headers are
  /// included: 64 bytes per operation, link and direction.
  [[nodiscard]] std::size_t bytes_sent() const noexcept;
  [[nodiscard]] std::size_t bytes_received() const noexcept;

  /// Seconds for which asynchronous collectives have run on this rank so far. The part of it that
  /// the program did not spend waiting was overlapped with computation.
  [[nodiscard]] double async_seconds() const noexcept;

  /// The host of each rank; hosts are numbered from 0 in the order of their first ranks. Equal on
  /// all ranks. The first call may ask the job's store.
  [[nodiscard]] std::vector<int> hosts() const;
  /// Whether all ranks see each other's shared buffers (allocate_shared). Equal on all ranks.
  [[nodiscard]] bool shares_memory() const;

  /// Local. A group of the given ranks of this group, in the order of their new ranks. Only the
  /// members call it, all with the same list. It opens no connection until it is used.
  [[nodiscard]] process_group subgroup(std::span<const int> ranks, subgroup_options options = {},
                                       call_site site = call_site::current()) const;
  [[nodiscard]] process_group subgroup(std::initializer_list<int> ranks,
                                       subgroup_options options = {},
                                       call_site site = call_site::current()) const {
    return subgroup(std::span<const int>(ranks.begin(), ranks.size()), std::move(options), site);
  }

  /// Local: what collective_options::tag stands for in errors, by number: "unit \"layers.3\"".
  /// Equal on all ranks.
  void name_tags(std::vector<std::string> names);

  /// Makes the group unusable on every rank of the job; their calls fail with an error that
  /// contains `reason`. Does nothing in a process forked from the rank's.
  void abort(std::string_view reason);
  /// As abort(), for a destructor that runs because of an exception: what that says is known once
  /// it is caught. The other ranks wait for it up to a second, then `place` is their reason.
  void abort_for_now(std::string_view place) noexcept;
  /// Whether abort_for_now() was called and abort() was not yet: it still tells the others why.
  [[nodiscard]] bool awaits_reason() const;
  /// For the end of a program: whether everything that other ranks have sent for this group's calls
  /// was read. If not, logs what was not and aborts the job, as the destructor does: two ranks took
  /// themselves for the root of the last call. Does not block; data that arrives later is not seen.
  [[nodiscard]] bool all_calls_read();
  /// Whether a failure or abort() has closed this group.
  [[nodiscard]] bool closed() const;

 private:
  friend const std::shared_ptr<detail::group_core>& detail::core_of(const process_group&);

  explicit process_group(std::shared_ptr<detail::group_core> core) : core_(std::move(core)) {}

  std::shared_ptr<detail::group_core> core_;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/comm/detail/process_group_impl.hpp>
#endif
