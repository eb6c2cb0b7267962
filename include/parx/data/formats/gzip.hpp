// gzip_reader: a file read from front to back, unpacked on the way where it is gzip.
//
// A plain file is passed through, so callers never ask which of the two they have. A gzip file that
// ends too early is an error, never a short read: zlib tells the two apart and so do we.
// A reader belongs to one thread.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::data {

class gzip_reader {
 public:
  /// Opens `path`. Throws errc::io when the file cannot be opened.
  explicit gzip_reader(std::string path) : path_(std::move(path)) {
    errno = 0;
    file_.reset(gzopen(path_.c_str(), "rbe"));
    if (file_ == nullptr) {
      throw_error(errc::io, "cannot open \"{}\": {}. Check the path and its permissions.", path_,
                  errno != 0 ? errno_text(errno) : "out of memory");
    }
    gzbuffer(file_.get(), 1U << 17U);
  }

  /// Reads up to target.size() bytes and returns how many; fewer means that the file ended there.
  /// Throws errc::bad_data when the gzip stream is damaged or cut short, errc::io when reading
  /// fails.
  std::size_t read(std::span<std::byte> target) {
    std::size_t done = 0;
    while (done < target.size()) {
      const auto part = static_cast<unsigned>(std::min(target.size() - done, largest_read));
      errno = 0;
      const int count = gzread(file_.get(), target.data() + done, part);
      if (count > 0) done += static_cast<std::size_t>(count);
      check_stream(done);
      if (count < static_cast<int>(part)) break;
    }
    offset_ += done;
    return done;
  }

  /// Fills `target` or throws errc::bad_data; `what` names the missing part in the message.
  void read_exactly(std::span<std::byte> target, const char* what) {
    const std::uint64_t start = offset_;
    const std::size_t count = read(target);
    if (count < target.size()) {
      throw_error(errc::bad_data,
                  "\"{}\" ends too early: {} at byte {} needs {} bytes, but only {} are left. The "
                  "file is incomplete; copy or download it again.",
                  path_, what, start, target.size(), count);
    }
  }

  /// Reads exactly `count` bytes into a new vector. Memory grows with what the file really holds,
  /// so a false count in a damaged header ends in an error, not in a giant allocation.
  [[nodiscard]] std::vector<std::uint8_t> read_bytes(std::uint64_t count, const char* what) {
    constexpr std::uint64_t step = std::uint64_t{1} << 24U;
    const std::uint64_t start = offset_;
    std::vector<std::uint8_t> bytes;
    while (bytes.size() < count) {
      const std::size_t old_size = bytes.size();
      const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(step, count - old_size));
      bytes.resize(old_size + part);
      const auto target = std::as_writable_bytes(std::span(bytes).subspan(old_size));
      if (const std::size_t got = read(target); got < part) {
        throw_error(
            errc::bad_data,
            "\"{}\" ends too early: {} at byte {} need {} bytes, but only {} are there. The "
            "file is incomplete; copy or download it again.",
            path_, what, start, count, old_size + got);
      }
    }
    return bytes;
  }

  /// Whether the file is named as gzip and is none. Known once something was read.
  [[nodiscard]] bool misnamed() const noexcept {
    return path_.ends_with(".gz") && gzdirect(file_.get()) == 1;
  }
  /// Position in the unpacked bytes.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  struct closer {
    void operator()(gzFile file) const noexcept { gzclose_r(file); }
  };
  static constexpr std::size_t largest_read = std::size_t{1} << 30U;  // gzread returns an int

  void check_stream(std::size_t done) const {
    const int saved_errno = errno;
    int code = Z_OK;
    const char* reason = gzerror(file_.get(), &code);
    if (code == Z_OK || code == Z_STREAM_END) return;
    const std::uint64_t position = offset_ + done;
    if (code == Z_BUF_ERROR) {
      throw_error(errc::bad_data,
                  "\"{}\" is a gzip file that was cut short: it ends inside the compressed data, "
                  "after {} unpacked bytes. Copy or download it again.",
                  path_, position);
    }
    if (code == Z_ERRNO) {
      throw_error(errc::io, "reading \"{}\" failed after {} bytes: {}.", path_, position,
                  errno_text(saved_errno));
    }
    throw_error(
        errc::bad_data,
        "\"{}\" is a damaged gzip file: {}, after {} unpacked bytes. Copy or download it again.",
        path_, reason, position);
  }

  std::string path_;
  std::unique_ptr<gzFile_s, closer> file_;
  std::uint64_t offset_ = 0;
};

}  // namespace parx::data
