// gzip_reader: reads a file from front to back and decompresses it if it is gzip.
//
// A plain file is passed through, so callers need not know which of the two they have. A gzip file
// that ends too early is an error, never a short read. A reader belongs to one thread.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::data {

class gzip_reader {
 public:
  /// Opens `path`. Throws errc::io when the file cannot be opened.
  explicit gzip_reader(std::string path);

  /// Reads up to target.size() bytes and returns how many; fewer means that the file ended there.
  /// Throws errc::bad_data when the gzip stream is damaged or cut short, errc::io when reading
  /// fails.
  std::size_t read(std::span<std::byte> target);

  /// Fills `target` or throws errc::bad_data; `what` names the missing part in the message.
  void read_exactly(std::span<std::byte> target, const char* what);

  /// Reads exactly `count` bytes into a new vector. Memory grows with the bytes that are read, so a
  /// wrong count in a damaged header ends in an error, not in a giant allocation.
  [[nodiscard]] std::vector<std::uint8_t> read_bytes(std::uint64_t count, const char* what);

  /// Goes on reading at this position of the unpacked bytes, which is not before offset(). Of a
  /// plain file nothing between is read. Throws as read() does.
  void skip_to(std::uint64_t position);
  /// Whether the file is not gzip.
  [[nodiscard]] bool is_plain() const noexcept { return gzdirect(file_.get()) == 1; }

  /// Whether the file is named .gz but is not gzip. Known once something was read.
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

  void check_stream(std::size_t done) const;

  std::string path_;
  std::unique_ptr<gzFile_s, closer> file_;
  std::uint64_t offset_ = 0;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/formats/detail/gzip_impl.hpp>
#endif
