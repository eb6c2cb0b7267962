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
  void note(std::size_t unit);
  /// The unit that was used `ahead` units after this one in the last pass; `none` where the pass
  /// ended before.
  [[nodiscard]] std::size_t expected(std::size_t ahead) const noexcept {
    return next_ + ahead < before_.size() ? before_[next_ + ahead] : none;
  }
  void end_pass() noexcept;

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
  bool leave_forward(std::size_t unit, bool is_kept) noexcept;
  /// A unit of which a module computes, of those that are within one another the innermost; none.
  [[nodiscard]] std::size_t innermost_active() const noexcept;
  /// Backward runs nodes of the unit.
  void enter_backward(std::size_t unit) { need(unit, backward_); }
  /// The next ones are those of unit `next`, or of none.
  void leave_backward(std::size_t unit, std::size_t next) noexcept;

 private:
  void release_unused(std::size_t unit) noexcept {
    if (active_[unit] == 0) values_.release(unit);
  }
  void need(std::size_t unit, use_order& order);
  /// The outer ones first. `used` is the innermost.
  void make_readable(std::size_t unit, std::size_t used);

  const unit_plan& plan_;
  unit_values& values_;
  const std::size_t prefetch_;
  std::vector<std::size_t> active_;  ///< by unit: modules of it that compute
  use_order forward_, backward_;
  std::uint32_t way_ = 0;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/fsdp/detail/unit_uses_impl.hpp>
#endif
