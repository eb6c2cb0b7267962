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

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/temporary_file.hpp>

namespace parx::inline PARX_ABI::detail {

/// What a user can do about a failed file operation.
[[nodiscard]] std::string advice_for(int saved_errno);

/// Brings a folder's entries to the disk. The files in it are safe either way, so a file system
/// that cannot do this is no failure.
void flush_folder(const std::filesystem::path& folder) noexcept;

class output_file {
 public:
  /// Creates `path`, which must not exist. `consequence` ends every message: "Nothing was changed
  /// under ...". Throws errc::io, as everything here.
  output_file(std::string path, std::string consequence);
  /// Goes on with a file that was made, which has its life sign as long as this object lives.
  output_file(temporary_file made, std::string consequence);
  /// One that another process has made, for several that write it together: see write_at.
  enum class made_by { another };
  output_file(std::string path, std::string consequence, made_by);
  ~output_file() {
    if (file_.valid()) ::unlink(path_.c_str());
  }
  output_file(const output_file&) = delete;
  output_file& operator=(const output_file&) = delete;

  /// Appends all bytes.
  void write(std::span<const std::byte> bytes);

  /// Writes all bytes from `offset` on; write() goes on after them.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
    if (::lseek(file_.get(), static_cast<off_t>(offset), SEEK_SET) < 0) fail("cannot seek", errno);
    write(bytes);
  }

  /// Brings the contents to the disk and closes the file, which stays.
  void finish();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }

  [[noreturn]] void fail(const char* what, int saved_errno) const;

 private:
  std::string path_;
  std::string consequence_;
  descriptor file_;
  descriptor life_;  // of a temporary file
  std::uint64_t written_ = 0;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/output_file_impl.hpp>
#endif
