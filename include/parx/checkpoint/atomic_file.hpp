// atomic_file: a file that appears under its name only when it is complete and on the disk.
//
// Written under a temporary name in the same folder, flushed, then renamed over the old file. If
// anything fails before, the old file is unchanged. The next writer of the same file removes the
// temporary files of killed processes. One thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <parx/checkpoint/detail/output_file.hpp>

namespace parx::inline PARX_ABI::detail {

/// The path that is actually written for `path`: symbolic links are followed. Throws errc::io if it
/// exists but is not a regular file, since a rename would destroy it or fail.
[[nodiscard]] std::string file_target(const std::string& path);

class atomic_file {
 public:
  /// Creates the temporary file beside `path`. Throws errc::io.
  explicit atomic_file(const std::string& path);

  /// Appends all bytes. Throws errc::io, also for a full disk.
  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  /// The file under its temporary name.
  [[nodiscard]] output_file& file() noexcept { return file_; }

  /// Makes the file appear under its name. Throws errc::io; the old file is then still there.
  void commit();

 private:
  std::string path_;
  output_file file_;
};

/// Writes a text file through an atomic_file. Throws errc::io.
void write_atomically(const std::string& path, std::string_view text);

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/atomic_file_impl.hpp>
#endif
