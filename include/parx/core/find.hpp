// find: searches in a few elements. They are plain loops: each type of element that is given to
// std::ranges::find takes a compiler 2 MB more.
#pragma once

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

template <typename Value, typename Range>
[[nodiscard]] constexpr bool is_in(const Value& value, const Range& range) {
  for (const auto& each : range) {
    if (each == value) return true;
  }
  return false;
}

/// The first element whose `member` equals `value`, or the end.
template <typename Range, typename Element, typename Member, typename Value>
[[nodiscard]] constexpr auto find_by(Range& range, Member Element::*member, const Value& value) {
  auto at = range.begin();
  while (at != range.end() && !((*at).*member == value)) ++at;
  return at;
}

}  // namespace parx
