// input_file: a regular file that is open for reading, at any offset, from any thread.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

class input_file {
 public:
  /// Throws errc::io.
  explicit input_file(std::string path) : path_(std::move(path)) {
    // O_NONBLOCK, because opening a pipe would wait for its writer.
    file_ = descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file_.valid()) {
      throw_error(errc::io, "cannot open \"{}\": {}. Check the path and its permissions.", path_,
                  errno_text(errno));
    }
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode))
      throw_error(errc::io, "\"{}\" is not a regular file. Give the path of a file.", path_);
    size_ = static_cast<std::uint64_t>(status.st_size);
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Bytes when it was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] int number() const noexcept { return file_.get(); }

  /// Fills `target` from `offset` on. Throws errc::io when the disk fails, errc::bad_data when the
  /// file ends before.
  void read(std::uint64_t offset, std::span<std::byte> target) const {
    while (!target.empty()) {
      const ssize_t count =
          ::pread(file_.get(), target.data(), std::min<std::size_t>(target.size(), 1U << 30U),
                  static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        throw_error(errc::io, "reading \"{}\" failed at byte {}: {}.", path_, offset,
                    errno_text(errno));
      }
      if (count == 0) {
        throw_error(errc::bad_data,
                    "\"{}\" became shorter while it was read: it had {} bytes, now it ends at {}. "
                    "Do not change files that are being read.",
                    path_, size_, offset);
      }
      target = target.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
  }

  /// The contents. Throws errc::bad_data for more than 100 MB, which no file of text here has.
  [[nodiscard]] std::string whole_text() const {
    constexpr std::uint64_t limit = 100'000'000;
    if (size_ > limit)
      throw_error(errc::bad_data, "\"{}\" has {} bytes; at most {} are read.", path_, size_, limit);
    std::string text(static_cast<std::size_t>(size_), '\0');
    read(0, std::as_writable_bytes(std::span(text)));
    return text;
  }

 private:
  std::string path_;
  descriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace parx::detail
