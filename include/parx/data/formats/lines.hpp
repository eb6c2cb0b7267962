// line_reader: reads the lines of a text file, plain or gzip, one at a time.
//
// Lines end in LF or CRLF; a UTF-8 byte order mark is skipped; UTF-16 and NUL bytes are an error
// that names the encoding. Memory is one line and one buffer. A reader belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/core/source.hpp>
#include <parx/data/formats/gzip.hpp>

namespace parx::inline PARX_ABI::data {

class line_reader {
 public:
  /// Opens `path`. A line of more than `longest` bytes is an error: such a file is not text. Throws
  /// errc::io.
  explicit line_reader(const std::string& path, std::size_t longest = std::size_t{1} << 28U)
      : file_(path), longest_(longest) {}

  /// Reads the next line, without its end, into `line`; false after the last. Throws errc::io, or
  /// errc::bad_data for a line that is too long, a NUL byte or a damaged gzip file.
  bool next(std::string& line);

  /// Before the first line: goes on at the first line that begins at this byte or later, of a plain
  /// file without reading what is before. number() counts from there.
  void skip_to(std::uint64_t position);

  /// The number of the last line read, counted from 1.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// The byte, of the unpacked file, at which the next line begins.
  [[nodiscard]] std::uint64_t offset() const noexcept { return file_.offset() - (end_ - begin_); }
  /// Whether the file is not gzip.
  [[nodiscard]] bool is_plain() const noexcept { return file_.is_plain(); }
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

 private:
  bool fill();

  gzip_reader file_;
  std::size_t longest_;
  std::vector<char> buffer_ = std::vector<char>(std::size_t{1} << 16U);
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t number_ = 0;
};

/// A whole file, unpacked, up to `largest` bytes. Throws errc::io or errc::bad_data; the latter
/// also for a byte order mark of UTF-16.
[[nodiscard]] std::string read_text(const std::string& path,
                                    std::uint64_t largest = std::uint64_t{1} << 36U,
                                    call_site = call_site::current());

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/formats/detail/lines_impl.hpp>
#endif
