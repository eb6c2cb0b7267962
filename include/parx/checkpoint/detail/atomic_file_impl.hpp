// Definitions of atomic_file.hpp.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/temporary_file.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::string file_target(const std::string& path) {
  std::error_code failure;
  const auto resolved = std::filesystem::weakly_canonical(path, failure);
  const std::string target = failure ? path : resolved.string();
  const auto status = std::filesystem::status(target, failure);
  if (!failure && std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw_error(errc::io,
                "\"{}\" is {}, not a file, and will not be replaced by one. Give a file name.",
                path, std::filesystem::is_directory(status) ? "a folder" : "a device or a pipe");
  }
  return target;
}

PARX_INLINE atomic_file::atomic_file(const std::string& path)
    : path_(file_target(path)),
      file_(make_temporary(path_), formatted("Nothing was changed under \"{}\".", path_)) {}

PARX_INLINE void atomic_file::commit() {
  file_.finish();
  if (::rename(file_.path().c_str(), path_.c_str()) != 0) {
    const int saved_errno = errno;
    ::unlink(file_.path().c_str());
    file_.fail("cannot rename", saved_errno);
  }
  flush_folder(std::filesystem::path(path_).parent_path());
}

PARX_INLINE void write_atomically(const std::string& path, std::string_view text) {
  atomic_file file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace parx::detail
