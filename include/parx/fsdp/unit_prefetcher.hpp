// unit_prefetcher: decides when units are readable, as forward and backward passes enter and leave
// them, and gathers ahead what will be needed next.
//
// Using a unit also uses the units around it. After use a unit is released, unless one of its
// modules still computes or the caller keeps it. What is needed next is started before the wait for
// what is needed now. Each pass records the order of use and predicts
// from the previous pass's; a wrong prediction only costs an unneeded gather, the same on all
// ranks. Independent of groups and parameters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/unit_values.hpp>

namespace parx::inline PARX_ABI::detail {

/// The order in which one kind of pass uses units.
class use_order {
 public:
  void note(std::size_t unit) {
    if (!now_.empty() && now_.back() == unit) return;
    now_.push_back(unit);
    std::size_t at = next_;
    while (at < before_.size() && before_[at] != unit) ++at;
    if (at < before_.size()) next_ = at + 1;
  }
  /// The unit that was used `ahead` units after the current one in the previous pass; `none` if
  /// that pass ended before.
  [[nodiscard]] std::size_t expected(std::size_t ahead) const noexcept {
    return next_ + ahead < before_.size() ? before_[next_ + ahead] : none;
  }
  void end_pass() noexcept {
    if (now_.empty()) return;
    std::swap(before_, now_);
    now_.clear();
    next_ = 0;
  }

  static constexpr std::size_t none = static_cast<std::size_t>(-1);

 private:
  std::vector<std::size_t> before_, now_;
  std::size_t next_ = 0;
};

class unit_prefetcher {
 public:
  /// Plan and values are borrowed. `prefetch` units are gathered ahead.
  unit_prefetcher(const unit_plan& plan, unit_values& values, std::size_t prefetch)
      : plan_(plan), values_(values), prefetch_(prefetch), active_(plan.units().size()) {}

  /// A hash of the gathers since the last call. If it differs between ranks, they have gathered
  /// units in different orders. Uses of what is readable already may differ: a rank whose loss does
  /// not depend on a unit does not run its backward.
  [[nodiscard]] std::uint32_t take_order_hash() noexcept { return std::exchange(order_hash_, 0); }
  /// Blocks until the unit is readable.
  void enter_forward(std::size_t unit) {
    use({&unit, 1}, forward_);
    ++active_[unit];
  }
  /// `is_kept`: do not release the unit, because backward will need it at once.
  void leave_forward(std::size_t unit, bool is_kept) noexcept {
    if (--active_[unit] > 0) return;
    if (!is_kept) values_.release(unit);
    if (unit == 0) forward_.end_pass();
  }
  /// The last unit in the plan that has a computing module (so an inner one before the units around
  /// it); `none` if there is none.
  [[nodiscard]] std::size_t innermost_active() const noexcept {
    for (std::size_t unit = active_.size(); unit-- > 0;) {
      if (active_[unit] > 0) return unit;
    }
    return use_order::none;
  }
  /// Backward begins to run nodes that need all of these units. Blocks until they are readable.
  void enter_backward(std::span<const std::size_t> units) { use(units, backward_); }
  /// Backward leaves nodes of `units` for those of `next`; empty at the end of the pass.
  void leave_backward(std::span<const std::size_t> units,
                      std::span<const std::size_t> next) noexcept {
    if (next.empty()) {
      backward_.end_pass();
      for (std::size_t each = 0; each < active_.size(); ++each) release_unused(each);
      return;
    }
    for (const std::size_t unit : units) {
      if (!uses(next, unit)) release_unused(unit);
    }
  }

 private:
  /// Whether one of `units` is `outer` or within it.
  [[nodiscard]] bool uses(std::span<const std::size_t> units, std::size_t outer) const noexcept {
    return std::any_of(units.begin(), units.end(),
                       [&](std::size_t unit) { return plan_.is_within(unit, outer); });
  }
  void release_unused(std::size_t unit) noexcept {
    if (active_[unit] == 0) values_.release(unit);
  }
  void use(std::span<const std::size_t> units, use_order& order) {
    for (const std::size_t unit : units) {
      start(unit, units);
      order.note(unit);
    }
    for (std::size_t ahead = 0; ahead < prefetch_; ++ahead) {
      const std::size_t next = order.expected(ahead);
      if (next == use_order::none || !values_.has_room(next)) break;
      start_values(next);
    }
    for (std::size_t unit : units) {
      for (; unit != 0; unit = plan_.units()[unit].parent) values_.wait(unit);
    }
    values_.wait(0);
  }
  /// Starts the units around `unit`, and then `unit`. Where there is no room, it releases what no
  /// unit of `used` needs.
  void start(std::size_t unit, std::span<const std::size_t> used) {
    if (unit != 0) start(plan_.units()[unit].parent, used);
    for (std::size_t other = active_.size(); other-- > 1 && !values_.has_room(unit);) {
      if (!uses(used, other)) release_unused(other);
    }
    start_values(unit);
  }
  void start_values(std::size_t unit) {
    if (!values_.start(unit)) return;
    order_hash_ = (order_hash_ ^ static_cast<std::uint32_t>(unit + 1)) * 0x01000193U + 1;
  }

  const unit_plan& plan_;
  unit_values& values_;
  const std::size_t prefetch_;
  std::vector<std::size_t> active_;  ///< by unit: the number of its modules that compute
  use_order forward_, backward_;
  std::uint32_t order_hash_ = 0;
};

}  // namespace parx::detail
