// The definition of core/formatted.hpp.
#pragma once

#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE std::string vformatted(fmt::string_view text, fmt::format_args args) {
  return fmt::vformat(text, args);
}

}  // namespace parx
