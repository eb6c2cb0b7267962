// Definitions of fsdp.hpp.
#pragma once

#include <parx/fsdp/fsdp.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE gathered_values_scope::gathered_values_scope(detail::sharded_units& units,
                                                         const std::vector<std::size_t>& wanted)
    : units_(units),
      region_(*this),
      outer_(std::exchange(detail::current_region(), region_.number())) {
  try {
    for (const std::size_t unit : wanted) {
      units.open(unit);
      open_.push_back(unit);
    }
  } catch (...) {
    close();
    throw;
  }
}

PARX_INLINE void gathered_values_scope::close() noexcept {
  for (const std::size_t unit : open_) units_.close(unit);
  detail::current_region() = outer_;
}

}  // namespace parx
