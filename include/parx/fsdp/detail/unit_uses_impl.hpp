// Definitions of unit_uses.hpp.
#pragma once

#include <parx/core/check.hpp>
#include <parx/fsdp/unit_uses.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE void use_order::note(std::size_t unit) {
  if (!now_.empty() && now_.back() == unit) return;
  now_.push_back(unit);
  std::size_t at = next_;
  while (at < before_.size() && before_[at] != unit) ++at;
  if (at < before_.size()) next_ = at + 1;
}

PARX_INLINE void use_order::end_pass() noexcept {
  if (now_.empty()) return;
  std::swap(before_, now_);
  now_.clear();
  next_ = 0;
}

PARX_INLINE bool unit_uses::leave_forward(std::size_t unit, bool is_kept) noexcept {
  if (--active_[unit] > 0) return false;
  if (!is_kept) values_.release(unit);
  if (unit == 0) forward_.end_pass();
  return true;
}

PARX_INLINE std::size_t unit_uses::innermost_active() const noexcept {
  for (std::size_t unit = active_.size(); unit-- > 0;) {
    if (active_[unit] > 0) return unit;
  }
  return use_order::none;
}

PARX_INLINE void unit_uses::leave_backward(std::size_t unit, std::size_t next) noexcept {
  if (next == use_order::none) {
    backward_.end_pass();
    for (std::size_t each = 0; each < active_.size(); ++each) release_unused(each);
  } else if (!plan_.is_within(next, unit)) {
    release_unused(unit);
  }
}

PARX_INLINE void unit_uses::need(std::size_t unit, use_order& order) {
  order_hash_ = (order_hash_ ^ static_cast<std::uint32_t>(unit + 1)) * 0x01000193U + 1;
  make_readable(unit, unit);
  order.note(unit);
  for (std::size_t ahead = 0; ahead < prefetch_; ++ahead) {
    const std::size_t next = order.expected(ahead);
    if (next == use_order::none || !values_.has_room(next)) break;
    values_.start(next);
  }
}

PARX_INLINE void unit_uses::make_readable(std::size_t unit, std::size_t used) {
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

}  // namespace parx::detail
