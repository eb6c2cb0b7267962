// text_bytes: whether the bytes of a file are text in UTF-8, as the readers of text expect.
//
// What other programs write in its place: UTF-16 with a byte order mark (Excel's "Unicode text"),
// UTF-16 without one, and binary files. All have NUL bytes, which end an exception's message.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::data::detail {

/// The bytes of UTF-8's byte order mark at the beginning of a file: 0 or 3. Throws errc::bad_data
/// for the marks of UTF-16 and UTF-32.
[[nodiscard]] inline std::size_t size_of_mark(std::string_view first, const std::string& path) {
  using namespace std::string_view_literals;
  struct encoding {
    std::string_view mark, name, order;
  };
  // UTF-32's little-endian mark begins with that of UTF-16.
  static constexpr std::array<encoding, 4> others{{{"\xFF\xFE\0\0"sv, "UTF-32", "little"},
                                                   {"\0\0\xFE\xFF"sv, "UTF-32", "big"},
                                                   {"\xFF\xFE"sv, "UTF-16", "little"},
                                                   {"\xFE\xFF"sv, "UTF-16", "big"}}};
  for (const encoding& each : others) {
    if (!first.starts_with(each.mark)) continue;
    throw_error(
        errc::bad_data,
        "\"{}\" is {}, {}-endian, by its byte order mark; expected UTF-8. Convert it: iconv "
        "-f {} -t UTF-8.",
        path, each.name, each.order, each.name);
  }
  return first.starts_with("\xEF\xBB\xBF") ? 3 : 0;
}

/// `bytes` begin in this line of the file, counted from 1. Throws errc::bad_data for a NUL.
inline void require_no_nul(std::string_view bytes, std::uint64_t line, const std::string& path) {
  const std::size_t at = bytes.find('\0');
  if (at == std::string_view::npos) return;
  const std::size_t last = std::min(bytes.size(), at + 8);
  bool is_every_second = at + 2 < bytes.size();
  for (std::size_t i = at; i < last; ++i) {
    is_every_second &= (bytes[i] == '\0') == ((i - at) % 2 == 0);
  }
  throw_error(errc::bad_data, "\"{}\", line {}: a NUL byte; expected text in UTF-8.{}", path,
              line + static_cast<std::uint64_t>(std::count(
                         bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at), '\n')),
              is_every_second
                  ? " Every second byte is one, as in UTF-16 without a byte order mark: "
                    "convert it with iconv -f UTF-16LE (or UTF-16BE) -t UTF-8."
                  : "");
}

}  // namespace parx::data::detail
