// file_text: a file as a string, of /proc too, whose files have no size.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <string>

#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::detail {

/// What is left of an open file, or nullopt where it cannot be read; errno says why.
[[nodiscard]] std::optional<std::string> text_of_file(const descriptor& file);

/// All of the file.
[[nodiscard]] inline std::optional<std::string> file_text(const std::string& path) {
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.valid() ? text_of_file(file) : std::nullopt;
}

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/file_text_impl.hpp>
#endif
