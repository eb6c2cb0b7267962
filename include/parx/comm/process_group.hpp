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

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/group_core.hpp>
#include <parx/core/check.hpp>
#include <parx/core/hash.hpp>

namespace parx::inline PARX_ABI {

class process_group;

namespace detail {

[[nodiscard]] inline const group_options& checked(const group_options& options) {
  require(options.timeout.count() > 0,
          "a group's timeout must be positive, not {} ms; there is no infinite setting",
          options.timeout.count());
  return options;
}

/// What the operations of comm work on; no other chapter calls it. Throws usage_error in a process
/// that was forked from the rank's.
[[nodiscard]] const std::shared_ptr<group_core>& core_of(const process_group& group);

}  // namespace detail

class process_group {
 public:
  /// A group over a transport that already joins its ranks. init() is the usual way to get one.
  /// Throws usage_error for a timeout that is none.
  explicit process_group(std::unique_ptr<transport> network, std::string name = "world",
                         group_options options = {})
      : core_(new detail::group_core(std::move(network), name, detail::fnv1a(name),
                                     detail::checked(options)),
              detail::end_in_own_process{}) {}
  process_group(process_group&&) noexcept = default;
  process_group& operator=(process_group&&) noexcept = default;

  [[nodiscard]] int rank() const noexcept { return core_->rank(); }
  [[nodiscard]] int size() const noexcept { return core_->size(); }
  [[nodiscard]] const std::string& name() const noexcept { return core_->name(); }

  /// Bytes this rank's collectives and messages have sent and received so far, headers (64 bytes a
  /// link, direction and operation) included.
  [[nodiscard]] std::size_t bytes_sent() const noexcept { return core_->bytes_sent(); }
  [[nodiscard]] std::size_t bytes_received() const noexcept { return core_->bytes_received(); }

  /// Seconds for which asynchronous collectives have run on this rank so far. What of it the
  /// program did not wait for was hidden behind its computation.
  [[nodiscard]] double async_seconds() const noexcept { return core_->async_seconds(); }

  /// The host of each rank, numbered from 0 in the order of their first ranks. Equal on all ranks.
  /// May ask the job's store the first time.
  [[nodiscard]] std::vector<int> hosts() const { return detail::core_of(*this)->network().hosts(); }
  /// Whether all ranks see each other's shared buffers (allocate_shared). Equal on all ranks.
  [[nodiscard]] bool shares_memory() const {
    return detail::core_of(*this)->network().shares_memory();
  }

  /// Local. A group of `ranks` (of this group, in the order of their new ranks). Only the members
  /// call it, each with the same list; it costs no connection until it is used.
  [[nodiscard]] process_group subgroup(std::span<const int> ranks, subgroup_options options = {},
                                       call_site site = call_site::current()) const {
    std::string list;
    bool member = false;
    const auto check = [&](bool holds, const std::string& why) {
      require(holds, "subgroup of group \"{}\" at {}:{}: {}", name(), site.file_name(), site.line,
              why);
    };
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto here = ranks.begin() + static_cast<std::ptrdiff_t>(i);
      check(*here >= 0 && *here < size(),
            fmt::format("rank {} is not one of its {} ranks", *here, size()));
      check(std::find(ranks.begin(), here, *here) == here,
            fmt::format("rank {} is listed twice", *here));
      member |= *here == rank();
      list += fmt::format("{}{}", i > 0 ? "," : "", *here);
    }
    check(member, fmt::format("this rank, {}, is not among the members {}", rank(), list));
    const std::uint64_t base = detail::fnv1a(list, detail::core_of(*this)->id());
    return derive(ranks, base,
                  options.name.empty() ? fmt::format("{}/[{}]", name(), list) : options.name);
  }

  /// Makes the group unusable on every rank of the job, which are given `reason`. Does nothing in a
  /// process that was forked from the rank's.
  void abort(std::string_view reason) {
    if (core_->is_here()) core_->abort(reason);
  }
  /// Whether a failure or abort() has closed this group.
  [[nodiscard]] bool closed() const { return core_->closed(); }

  /// With progress_mode::inline_poll: moves the asynchronous operations of all this thread's groups
  /// on, without waiting. Call it between pieces of computation.
  void poll() { detail::core_of(*this)->poll(); }

 private:
  friend const std::shared_ptr<detail::group_core>& detail::core_of(const process_group&);

  explicit process_group(std::shared_ptr<detail::group_core> core) : core_(std::move(core)) {}

  /// `base` follows from the members alone, so that their names for the group may differ.
  [[nodiscard]] process_group derive(std::span<const int> ranks, std::uint64_t base,
                                     const std::string& name) const {
    // The same members may form a group more than once.
    const std::uint64_t id = base + core_->next_group_number(base) * 0x9e3779b97f4a7c15u;
    group_options options = core_->options();
    options.choice = core_->choice().for_subgroup(ranks);
    return process_group(std::shared_ptr<detail::group_core>(
        new detail::group_core(core_->network().subgroup(ranks, id), name, id, options),
        detail::end_in_own_process{}));
  }

  std::shared_ptr<detail::group_core> core_;
};

namespace detail {

inline const std::shared_ptr<group_core>& core_of(const process_group& group) {
  group.core_->require_here();
  return group.core_;
}

}  // namespace detail

}  // namespace parx
