// atomic_file: a file that appears under its name only when it is complete and on the disk.
//
// Written under a temporary name in the same folder, flushed, then renamed over the old file. If
// anything fails before, the old file is unchanged. The next writer of the same file removes the
// temporary files of killed processes. One thread.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <parx/checkpoint/detail/output_file.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/temporary_file.hpp>

namespace parx::inline PARX_ABI::detail {

/// The path that is actually written for `path`: symbolic links are followed. Throws errc::io if it
/// exists but is not a regular file, since a rename would destroy it or fail.
[[nodiscard]] inline std::string file_target(const std::string& path) {
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

class atomic_file {
 public:
  /// Creates the temporary file beside `path`. Throws errc::io.
  explicit atomic_file(const std::string& path)
      : path_(file_target(path)),
        file_(make_temporary(path_), formatted("Nothing was changed under \"{}\".", path_)) {}

  /// Appends all bytes. Throws errc::io, also for a full disk.
  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  /// The file under its temporary name.
  [[nodiscard]] output_file& file() noexcept { return file_; }

  /// Makes the file appear under its name. Throws errc::io; the old file is then still there.
  void commit() {
    file_.finish();
    if (::rename(file_.path().c_str(), path_.c_str()) != 0) {
      const int saved_errno = errno;
      ::unlink(file_.path().c_str());
      file_.fail("cannot rename", saved_errno);
    }
    flush_folder(std::filesystem::path(path_).parent_path());
  }

 private:
  std::string path_;
  output_file file_;
};

/// Writes a text file through an atomic_file. Throws errc::io.
inline void write_atomically(const std::string& path, std::string_view text) {
  atomic_file file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace parx::detail
