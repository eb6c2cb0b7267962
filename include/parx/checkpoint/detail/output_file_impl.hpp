// Definitions of output_file.hpp.
#pragma once

#include <fcntl.h>

#include <utility>

#include <parx/checkpoint/detail/output_file.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::string advice_for(int saved_errno) {
  switch (saved_errno) {
    case ENOSPC:
    case EDQUOT:
      return "The disk is full: free some space or save elsewhere.";
    case EFBIG:
      return "Raise the limit on file sizes (ulimit -f) or save elsewhere.";
    case EROFS:
      return "The file system is read-only: save elsewhere.";
    case ENOENT:
      return "Create the folder first.";
    default:
      return "Check the folder and its permissions.";
  }
}

PARX_INLINE void flush_folder(const std::filesystem::path& folder) noexcept {
  const descriptor opened(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.valid()) ::fsync(opened.get());
}

PARX_INLINE output_file::output_file(std::string path, std::string consequence)
    : path_(std::move(path)), consequence_(std::move(consequence)) {
  file_ = descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file_.valid()) fail("cannot create", errno);
}

PARX_INLINE output_file::output_file(temporary_file made, std::string consequence)
    : path_(std::move(made.name)),
      consequence_(std::move(consequence)),
      file_(std::move(made.file)),
      life_(std::move(made.life)) {
  if (!file_.valid()) fail("cannot create", made.reason);
}

PARX_INLINE output_file::output_file(std::string path, std::string consequence, made_by)
    : path_(std::move(path)), consequence_(std::move(consequence)) {
  file_ = descriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file_.valid()) fail("cannot open", errno);
}

PARX_INLINE void output_file::write(std::span<const std::byte> bytes) {
  const auto [written, reason] = write_all(file_.get(), bytes);
  written_ += written;
  if (reason != 0) fail("cannot write", reason);
}

PARX_INLINE void output_file::finish() {
  if (::fsync(file_.get()) != 0) fail("cannot flush", errno);
  // Network file systems report a full disk or quota only here.
  if (::close(file_.release()) != 0) {
    const int saved_errno = errno;
    ::unlink(path_.c_str());
    fail("cannot close", saved_errno);
  }
}

PARX_INLINE void output_file::fail(const char* what, int saved_errno) const {
  const std::string progress = written_ > 0 ? formatted(" after {} bytes", written_) : "";
  throw_error(errc::io, "{} \"{}\"{}: {}. {} {}", what, path_, progress, errno_text(saved_errno),
              advice_for(saved_errno), consequence_);
}

}  // namespace parx::detail
