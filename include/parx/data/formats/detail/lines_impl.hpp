// Definitions of lines.hpp.
#pragma once

#include <cstring>
#include <span>
#include <string_view>

#include <parx/core/error.hpp>
#include <parx/data/formats/detail/text_bytes.hpp>
#include <parx/data/formats/lines.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE bool line_reader::next(std::string& line) {
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
  ++number_;
  return true;
}

PARX_INLINE void line_reader::skip_to(std::uint64_t position) {
  if (position == 0) return;
  file_.skip_to(position - 1);  // a line begins at `position` if this byte ends another
  std::string rest;
  (void)next(rest);
  number_ = 0;
}

PARX_INLINE bool line_reader::fill() {
  const bool is_start = file_.offset() == 0;
  end_ = file_.read(std::as_writable_bytes(std::span(buffer_)));
  const std::string_view bytes(buffer_.data(), end_);
  begin_ = is_start ? detail::size_of_mark(bytes, path()) : 0;
  detail::require_no_nul(bytes, number_ + 1, path());
  return end_ > 0;
}

PARX_INLINE std::string read_text(const std::string& path, std::uint64_t largest, call_site) {
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
    if (old_size == 0) (void)detail::size_of_mark(text, path);
    if (got < step) return text;
  }
}

}  // namespace parx::data
