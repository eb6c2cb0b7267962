// unit_uses: which units are readable when: forward and backward passes enter and leave them, and
// what will be needed next is gathered ahead.
//
// A unit is used together with those that it is within. After use it is released, except that it
// stays while a module of it still computes, and where the caller says so. The order of use is
// noted in each pass and expected of the next one; where a pass takes another way, something is
// gathered in vain, the same on all ranks. Knows no groups and no parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
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
  /// The unit that was used `ahead` units after this one in the last pass; `none` where the pass
  /// ended before.
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

class unit_uses {
 public:
  /// Both are borrowed. `prefetch` units are gathered ahead.
  unit_uses(const unit_plan& plan, unit_values& values, std::size_t prefetch)
      : plan_(plan), values_(values), prefetch_(prefetch), active_(plan.units().size()) {}

  /// A number below 2^32 that follows from the uses since it was taken last: ranks whose numbers
  /// differ have gathered other units.
  [[nodiscard]] std::uint32_t take_way() noexcept { return std::exchange(way_, 0); }
  /// Blocks until the unit is readable. Whether no other module of it computes already.
  bool enter_forward(std::size_t unit) {
    need(unit, forward_);
    return active_[unit]++ == 0;
  }
  /// Whether no module of it computes any more. `is_kept`: backward will want it at once.
  bool leave_forward(std::size_t unit, bool is_kept) noexcept {
    if (--active_[unit] > 0) return false;
    if (!is_kept) values_.release(unit);
    if (unit == 0) forward_.end_pass();
    return true;
  }
  /// A unit of which a module computes, of those that are within one another the innermost; none.
  [[nodiscard]] std::size_t innermost_active() const noexcept {
    for (std::size_t unit = active_.size(); unit-- > 0;) {
      if (active_[unit] > 0) return unit;
    }
    return use_order::none;
  }
  /// Backward runs nodes of the unit.
  void enter_backward(std::size_t unit) { need(unit, backward_); }
  /// The next ones are those of unit `next`, or of none.
  void leave_backward(std::size_t unit, std::size_t next) noexcept {
    if (next == use_order::none) {
      backward_.end_pass();
      for (std::size_t each = 0; each < active_.size(); ++each) release_unused(each);
    } else if (!plan_.is_within(next, unit)) {
      release_unused(unit);
    }
  }

 private:
  void release_unused(std::size_t unit) noexcept {
    if (active_[unit] == 0) values_.release(unit);
  }
  void need(std::size_t unit, use_order& order) {
    way_ = (way_ ^ static_cast<std::uint32_t>(unit + 1)) * 0x01000193U + 1;
    make_readable(unit, unit);
    order.note(unit);
    for (std::size_t ahead = 0; ahead < prefetch_; ++ahead) {
      const std::size_t next = order.expected(ahead);
      if (next == use_order::none || !values_.has_room(next)) break;
      values_.start(next);
    }
  }
  /// The outer ones first. `used` is the innermost.
  void make_readable(std::size_t unit, std::size_t used) {
    if (unit != 0) make_readable(plan_.units()[unit].parent, used);
    for (std::size_t other = active_.size(); other-- > 1 && !values_.has_room(unit);) {
      if (!plan_.is_within(used, other)) release_unused(other);
    }
    require(values_.has_room(unit),
            "fsdp: there is no memory for {}, because others are held by gathered(): read "
            "parameters of one unit after the other, or raise .prefetch",
            plan_.name(unit));
    values_.wait(unit);
  }

  const unit_plan& plan_;
  unit_values& values_;
  const std::size_t prefetch_;
  std::vector<std::size_t> active_;  ///< by unit: modules of it that compute
  use_order forward_, backward_;
  std::uint32_t way_ = 0;
};

}  // namespace parx::detail
