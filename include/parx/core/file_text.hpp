// file_text: a file as a string. It is read to its end, because files of /proc have no size.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <string>

#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::detail {

/// The rest of an open file, or nullopt where it cannot be read; errno says why.
[[nodiscard]] std::optional<std::string> text_of_file(const descriptor& file);

/// The whole file, or nullopt as above.
[[nodiscard]] inline std::optional<std::string> file_text(const std::string& path) {
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.valid() ? text_of_file(file) : std::nullopt;
}

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/file_text_impl.hpp>
#endif
