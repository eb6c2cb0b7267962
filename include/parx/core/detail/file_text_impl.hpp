// Definitions of file_text.hpp.
#pragma once

#include <cerrno>
#include <cstddef>

#include <parx/core/file_text.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::optional<std::string> text_of_file(const descriptor& file) {
  std::string text;
  char piece[4096];
  while (true) {
    const ssize_t got = ::read(file.get(), piece, sizeof piece);
    if (got == 0) return text;
    if (got > 0) {
      text.append(piece, static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      return std::nullopt;
    }
  }
}

}  // namespace parx::detail
