// contents_hash: by which the tools tell versions of a file apart.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include <parx/core/hash.hpp>

namespace examples {

/// 16 hexadecimal digits.
[[nodiscard]] inline std::string contents_hash(std::string_view bytes) {
  return fmt::format("{:016x}", parx::detail::fnv1a(bytes));
}

}  // namespace examples
