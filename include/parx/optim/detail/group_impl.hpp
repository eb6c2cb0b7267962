// Definitions of group.hpp.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

#include <parx/optim/group.hpp>

namespace parx::inline PARX_ABI::optim {

PARX_INLINE bool is_bias_or_norm(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.ends_with("bias") || lower.find("norm") != std::string::npos;
}

}  // namespace parx::optim
