// file_text: a file as a string. It is read to its end, because files of /proc have no size.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>

#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::detail {

/// The rest of an open file, or nullopt where it cannot be read; errno says why.
[[nodiscard, gnu::cold]] inline std::optional<std::string> text_of_file(const descriptor& file) {
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

/// The whole file, or nullopt as above.
[[nodiscard]] inline std::optional<std::string> file_text(const std::string& path) {
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.valid() ? text_of_file(file) : std::nullopt;
}

}  // namespace parx::detail
