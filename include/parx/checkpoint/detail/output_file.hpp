// output_file: a new file that is on the disk when finish() returns.
//
// Every error names the file, the bytes written so far, the reason and what to do. The destructor
// removes the file unless finish() has succeeded. One thread.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include <parx/core/descriptor.hpp>
#include <parx/core/temporary_file.hpp>

namespace parx::inline PARX_ABI::detail {

/// What a user can do about a failed file operation.
[[nodiscard]] std::string advice_for(int saved_errno);

/// Flushes a folder's entries to the disk. Errors are ignored: some file systems cannot do it, and
/// the files in the folder are flushed already.
void flush_folder(const std::filesystem::path& folder) noexcept;

class output_file {
 public:
  /// Creates `path`, which must not exist. `consequence` ends every error message: "Nothing was
  /// changed under ...". All functions throw errc::io.
  output_file(std::string path, std::string consequence);
  /// Takes over a temporary file, and marks it as in use as long as this object lives.
  output_file(temporary_file made, std::string consequence);
  /// Opens a file that another process has created, to write it together: see write_at.
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

  /// Flushes the contents to the disk and closes the file, which the destructor then keeps.
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
