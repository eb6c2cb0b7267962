// Definitions of process_group.hpp.
#pragma once

#include <algorithm>

#include <parx/comm/detail/group_core.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE const group_options& checked_options(const group_options& options) {
  require(options.timeout.count() > 0,
          "a group's timeout must be positive, not {} ms; there is no infinite setting",
          options.timeout.count());
  return options;
}

namespace detail {

/// Deletes a group, except in a process that was forked from a rank: the links and the thread
/// belong to the rank, which still uses them.
struct end_in_own_process {
  own_process process{};

  void operator()(group_core* core) const {
    if (process.is_this()) delete core;
    else keep_for_good(core);
  }
};

PARX_INLINE const std::shared_ptr<group_core>& core_of(const process_group& group) {
  group.core_->require_here();
  return group.core_;
}

PARX_INLINE std::shared_ptr<const shared_area> share_memory(process_group& group,
                                                            std::size_t bytes) {
  group_core& core = *core_of(group);
  return core.share(bytes, deadline::after(core.options().timeout));
}

}  // namespace detail

[[gnu::cold]] PARX_INLINE process_group::process_group(std::unique_ptr<links> network,
                                                       std::string name, group_options options)
    : core_(new detail::group_core(std::move(network), name, detail::fnv1a(name),
                                   checked_options(options),
                                   std::make_shared<detail::groups_of_rank>()),
            detail::end_in_own_process{}) {}

PARX_INLINE int process_group::rank() const noexcept { return core_->rank(); }
PARX_INLINE int process_group::size() const noexcept { return core_->size(); }
PARX_INLINE const std::string& process_group::name() const noexcept { return core_->name(); }
PARX_INLINE std::size_t process_group::bytes_sent() const noexcept {
  return core_->progress().bytes_sent();
}
PARX_INLINE std::size_t process_group::bytes_received() const noexcept {
  return core_->progress().bytes_received();
}
PARX_INLINE double process_group::async_seconds() const noexcept {
  return core_->progress().async_seconds();
}
PARX_INLINE std::vector<int> process_group::hosts() const {
  return detail::core_of(*this)->network().hosts();
}
PARX_INLINE bool process_group::shares_memory() const {
  return detail::core_of(*this)->network().shares_memory();
}

PARX_INLINE process_group process_group::subgroup(std::span<const int> ranks,
                                                  subgroup_options options, call_site site) const {
  bool member = false;
  const auto check = [&](bool holds, const std::string& why) {
    require(holds, "subgroup of group \"{}\" at {}: {}", name(), site, why);
  };
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto here = ranks.begin() + static_cast<std::ptrdiff_t>(i);
    check(*here >= 0 && *here < size(),
          formatted("rank {} is not one of its {} ranks", *here, size()));
    check(std::find(ranks.begin(), here, *here) == here,
          formatted("rank {} is listed twice", *here));
    member |= *here == rank();
  }
  const std::string list = joined_text(ranks, ",");
  check(member, formatted("this rank, {}, is not among the members {}", rank(), list));
  // The id depends on the members and not on the name: ranks may name the group differently. The
  // same members may form several groups, whose ids differ by a number.
  const std::uint64_t base = detail::fnv1a(list, detail::core_of(*this)->id());
  const std::uint64_t id = base + core_->next_group_number(base) * 0x9e3779b97f4a7c15u;
  if (options.name.empty()) options.name = formatted("{}/[{}]", name(), list);
  group_options own = core_->options();
  own.choice = core_->issuer().choice().for_subgroup(ranks);
  return process_group(std::shared_ptr<detail::group_core>(
      new detail::group_core(core_->network().subgroup(ranks, id), std::move(options.name), id, own,
                             core_->progress().siblings()),
      detail::end_in_own_process{}));
}

PARX_INLINE void process_group::name_tags(std::vector<std::string> names) {
  detail::core_of(*this)->progress().name_tags(std::move(names));
}
PARX_INLINE void process_group::abort(std::string_view reason) {
  if (core_->is_here()) core_->progress().abort(reason);
}
PARX_INLINE void process_group::abort_for_now(std::string_view place) noexcept {
  if (core_->is_here()) core_->progress().abort_for_now(place);
}
PARX_INLINE bool process_group::awaits_reason() const {
  return core_->network().job().awaits_reason();
}
PARX_INLINE bool process_group::all_calls_read() { return core_->progress().all_calls_read(); }
PARX_INLINE bool process_group::closed() const { return core_->progress().has_ended(); }

}  // namespace parx
