// output_file: a new file that is written from front to back and is on the disk when finish()
// returns.
//
// Every failure names the file, how far it got, the reason and what to do. Until finish() the file
// is the object's, whose destructor removes it. One thread.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/temporary_file.hpp>

namespace parx::inline PARX_ABI::detail {

/// What a user can do about a failed file operation.
[[nodiscard]] inline std::string advice_for(int saved_errno) {
  switch (saved_errno) {
    case ENOSPC:
    case EDQUOT: return "The disk is full: free some space or save elsewhere.";
    case EFBIG: return "Raise the limit on file sizes (ulimit -f) or save elsewhere.";
    case EROFS: return "The file system is read-only: save elsewhere.";
    case ENOENT: return "Create the folder first.";
    default: return "Check the folder and its permissions.";
  }
}

/// Brings a folder's entries to the disk. The files in it are safe either way, so a file system
/// that cannot do this is no failure.
inline void flush_folder(const std::filesystem::path& folder) noexcept {
  const descriptor opened(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.valid()) ::fsync(opened.get());
}

class output_file {
 public:
  /// Creates `path`, which must not exist. `consequence` ends every message: "Nothing was changed
  /// under ...". Throws errc::io, as everything here.
  output_file(std::string path, std::string consequence)
      : path_(std::move(path)), consequence_(std::move(consequence)) {
    file_ = descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file_.valid()) fail("cannot create", errno);
  }
  /// Goes on with a file that was made, which has its life sign as long as this object lives.
  output_file(temporary_file made, std::string consequence)
      : path_(std::move(made.name)),
        consequence_(std::move(consequence)),
        file_(std::move(made.file)),
        life_(std::move(made.life)) {
    if (!file_.valid()) fail("cannot create", made.reason);
  }
  /// One that another process has made, for several that write it together: see write_at.
  enum class made_by { another };
  output_file(std::string path, std::string consequence, made_by)
      : path_(std::move(path)), consequence_(std::move(consequence)) {
    file_ = descriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file_.valid()) fail("cannot open", errno);
  }
  ~output_file() {
    if (file_.valid()) ::unlink(path_.c_str());
  }
  output_file(const output_file&) = delete;
  output_file& operator=(const output_file&) = delete;

  /// Appends all bytes.
  void write(std::span<const std::byte> bytes) {
    const auto [written, reason] = write_all(file_.get(), bytes);
    written_ += written;
    if (reason != 0) fail("cannot write", reason);
  }

  /// Writes all bytes from `offset` on; write() goes on behind them.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
    if (::lseek(file_.get(), static_cast<off_t>(offset), SEEK_SET) < 0) fail("cannot seek", errno);
    write(bytes);
  }

  /// Brings the contents to the disk and closes the file, which stays.
  void finish() {
    if (::fsync(file_.get()) != 0) fail("cannot flush", errno);
    // Network file systems report a full disk or quota only here.
    if (::close(file_.release()) != 0) {
      const int saved_errno = errno;
      ::unlink(path_.c_str());
      fail("cannot close", saved_errno);
    }
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }

  [[noreturn]] void fail(const char* what, int saved_errno) const {
    const std::string progress = written_ > 0 ? fmt::format(" after {} bytes", written_) : "";
    throw_error(errc::io, "{} \"{}\"{}: {}. {} {}", what, path_, progress,
                errno_text(saved_errno), advice_for(saved_errno), consequence_);
  }

 private:
  std::string path_;
  std::string consequence_;
  descriptor file_;
  descriptor life_;  // of a temporary file
  std::uint64_t written_ = 0;
};

}  // namespace parx::detail
