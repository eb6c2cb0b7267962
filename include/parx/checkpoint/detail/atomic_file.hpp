// atomic_file: a file that appears under its name only when it is complete and on the disk.
//
// Written under a temporary name in the same folder, flushed, then renamed over the old file.
// Whatever fails or is killed before, the old file stays as it was. One thread.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::detail {

/// Where a file named `path` is really written: a symbolic link is followed. Throws errc::io where
/// something other than a file has that name, which a rename would destroy or not replace.
[[nodiscard]] inline std::string file_target(const std::string& path) {
  std::error_code failure;
  const auto resolved = std::filesystem::weakly_canonical(path, failure);
  const std::string target = failure ? path : resolved.string();
  const auto status = std::filesystem::status(target, failure);
  if (!failure && std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw_error(errc::io, "\"{}\" is {}, not a file, and will not be replaced by one. Give a file name.",
                path, std::filesystem::is_directory(status) ? "a folder" : "a device or a pipe");
  }
  return target;
}

class atomic_file {
 public:
  /// Creates the temporary file beside `path`. Throws errc::io.
  explicit atomic_file(const std::string& path) : path_(file_target(path)) {
    // The counter keeps two threads of one process apart, the pid two processes on one host.
    static std::atomic<unsigned> counter{0};
    temporary_ = fmt::format("{}.tmp.{}.{}", path_, ::getpid(), counter.fetch_add(1));
    file_ = descriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file_.valid()) fail("cannot create", errno);
  }
  ~atomic_file() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;

  /// Appends all bytes. Throws errc::io, also for a full disk.
  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count =
          ::write(file_.get(), bytes.data(), std::min<std::size_t>(bytes.size(), 1U << 30U));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail("cannot write", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      written_ += static_cast<std::uint64_t>(count);
    }
  }

  /// Makes the file appear under its name. Throws errc::io; the old file is then still there.
  void commit() {
    if (::fsync(file_.get()) != 0) fail("cannot flush", errno);
    // Network file systems report a full disk or quota only here.
    if (::close(file_.release()) != 0) fail("cannot close", errno);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename", errno);
    temporary_.clear();
    // Without this the rename itself can be lost with the machine. The data are safe either way, so
    // a file system that cannot flush folders is no failure.
    const std::string folder = std::filesystem::path(path_).parent_path().string();
    const descriptor directory(
        ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.valid()) ::fsync(directory.get());
  }

 private:
  [[noreturn]] void fail(const char* what, int saved_errno) const {
    throw_error(errc::io, "{} \"{}\" after {} bytes: {}. {} Nothing was changed under \"{}\".",
                what, temporary_, written_, errno_text(saved_errno),
                saved_errno == ENOSPC || saved_errno == EDQUOT
                    ? "The disk is full: free some space or save elsewhere."
                : saved_errno == ENOENT ? "Create the folder first."
                                        : "Check the folder and its permissions.",
                path_);
  }

  std::string path_;
  std::string temporary_;
  descriptor file_;
  std::uint64_t written_ = 0;
};

}  // namespace parx::detail
