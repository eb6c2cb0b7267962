// line_reader: the lines of a text file, plain or gzip, one at a time.
//
// Lines end in LF or CRLF; a UTF-8 byte order mark is skipped. Memory is one line and one buffer.
// A reader belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <parx/core/error.hpp>
#include <parx/data/formats/gzip.hpp>

namespace parx::inline PARX_ABI::data {

class line_reader {
 public:
  /// Opens `path`. A line of more than `longest` bytes is an error: such a file is not of lines.
  /// Throws errc::io.
  explicit line_reader(const std::string& path, std::size_t longest = std::size_t{1} << 28U)
      : file_(path), longest_(longest) {}

  /// Reads the next line, without its end, into `line`; false after the last. Throws errc::io, or
  /// errc::bad_data for a line that is too long or a damaged gzip file.
  bool next(std::string& line) {
    line.clear();
    bool any = false;
    for (;;) {
      if (begin_ == end_ && !fill()) break;
      any = true;
      const char* const start = buffer_.data() + begin_;
      const auto* const found = static_cast<const char*>(std::memchr(start, '\n', end_ - begin_));
      const std::size_t length =
          found != nullptr ? static_cast<std::size_t>(found - start) : end_ - begin_;
      if (line.size() + length > longest_)
        throw_error(errc::bad_data, "\"{}\", line {}: the line is longer than {} bytes.", path(),
                    number_ + 1, longest_);
      line.append(start, length);
      begin_ += length;
      if (found != nullptr) {
        ++begin_;
        break;
      }
    }
    if (!any) return false;
    if (line.ends_with('\r')) line.pop_back();
    if (++number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    return true;
  }

  /// The number of the last line read, counted from 1.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

 private:
  bool fill() {
    begin_ = 0;
    end_ = file_.read(std::as_writable_bytes(std::span(buffer_)));
    return end_ > 0;
  }

  gzip_reader file_;
  std::size_t longest_;
  std::vector<char> buffer_ = std::vector<char>(std::size_t{1} << 16U);
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t number_ = 0;
};

/// A whole file, unpacked, up to `largest` bytes. Throws errc::io or errc::bad_data.
[[nodiscard]] inline std::string read_text(const std::string& path,
                                           std::uint64_t largest = std::uint64_t{1} << 36U) {
  gzip_reader file(path);
  std::string text;
  constexpr std::size_t step = std::size_t{1} << 20U;
  for (;;) {
    const std::size_t old_size = text.size();
    text.resize(old_size + step);
    const std::size_t got = file.read(std::as_writable_bytes(std::span(text).subspan(old_size)));
    text.resize(old_size + got);
    if (text.size() > largest)
      throw_error(errc::bad_data, "\"{}\" is larger than {} bytes.", path, largest);
    if (got < step) return text;
  }
}

}  // namespace parx::data
