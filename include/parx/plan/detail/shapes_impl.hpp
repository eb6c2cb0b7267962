// Definitions of shapes.hpp.
#pragma once

#include <parx/plan/shapes.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE std::size_t planned_parameter::count() const noexcept {
  std::size_t product = 1;
  for (const std::size_t extent : extents) product *= extent;
  return product;
}

PARX_INLINE std::size_t model_shapes::count() const noexcept {
  std::size_t sum = 0;
  for (const planned_parameter& each : parameters) sum += each.count();
  return sum;
}

}  // namespace parx

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::optional<std::string_view> matched_prefix(std::string_view path,
                                                           std::string_view pattern) {
  std::size_t end = 0;
  while (true) {
    const std::size_t dot = std::min(path.find('.', end), path.size());
    const std::string_view wanted = pattern.substr(0, pattern.find('.'));
    if (wanted != "*" && wanted != path.substr(end, dot - end)) return std::nullopt;
    if (wanted.size() == pattern.size()) return path.substr(0, dot);
    if (dot == path.size()) return std::nullopt;
    pattern.remove_prefix(wanted.size() + 1);
    end = dot + 1;
  }
}

}  // namespace parx::detail
