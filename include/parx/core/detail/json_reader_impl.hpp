// Definitions of json_reader.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json_reader.hpp>

namespace parx::inline PARX_ABI::json::detail {

/// Bytes of the UTF-8 character that `text` begins with; 0 where that is none. RFC 3629, section 4.
[[nodiscard]] PARX_INLINE std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto tail = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return text.empty() ? 0 : 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool fits = tail(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) && tail(2);
    return fits ? 3 : 0;
  }
  if (first < 0xF0 || first > 0xF4) return 0;
  const bool fits =
      tail(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) && tail(2) && tail(3);
  return fits ? 4 : 0;
}

PARX_INLINE void append_utf8(std::string& result, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { result += static_cast<char>(byte); };
  const auto put_rest = [&](unsigned groups) {
    while (groups-- > 0) put(0x80U | (code >> (6U * groups) & 0x3FU));
  };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0U | code >> 6U);
    put_rest(1);
  } else if (code < 0x10000) {
    put(0xE0U | code >> 12U);
    put_rest(2);
  } else {
    put(0xF0U | code >> 18U);
    put_rest(3);
  }
}

}  // namespace parx::json::detail

namespace parx::inline PARX_ABI::json {

PARX_INLINE std::vector<std::uint64_t> reader::numbers() {
  std::vector<std::uint64_t> result;
  array([&] { result.push_back(number()); });
  return result;
}

PARX_INLINE std::uint64_t reader::number() {
  const std::string_view digits = number_text();
  std::uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, code] = std::from_chars(digits.data(), end, value);
  if (code != std::errc{} || stop != end) {
    position_ -= digits.size();
    fail("a whole number below 2^64");
  }
  return value;
}

PARX_INLINE std::string_view reader::number_text() {
  skip_space();
  const std::size_t begin = position_;
  (void)next_is('-');
  if (!next_is('0')) digits();
  if (next_is('.')) digits();
  if (next_is('e') || next_is('E')) {
    if (!next_is('+')) (void)next_is('-');
    digits();
  }
  return text_.substr(begin, position_ - begin);
}

PARX_INLINE std::string reader::string() {
  expect('"');
  std::string result;
  for (;;) {
    const std::size_t begin = position_;
    while (position_ < text_.size() && is_plain(text_[position_])) ++position_;
    result.append(text_, begin, position_ - begin);
    if (position_ == text_.size()) fail("the end of a string");
    const char c = text_[position_];
    if (c == '"') {
      ++position_;
      return result;
    }
    if (c == '\\') {
      ++position_;
      escape(result);
    } else {
      const std::size_t length = detail::utf8_length(text_.substr(position_));
      if (static_cast<unsigned char>(c) < 0x20) fail("no control character in a string");
      if (length == 0) fail("UTF-8");
      result.append(text_, position_, length);
      position_ += length;
    }
  }
}

PARX_INLINE bool reader::word(std::string_view wanted) {
  skip_space();
  if (text_.substr(position_, wanted.size()) != wanted) return false;
  position_ += wanted.size();
  return true;
}

PARX_INLINE void reader::skip() {
  switch (peek()) {
    case '{':
      return object([this](const std::string& /*key*/) { skip(); });
    case '[':
      return array([this] { skip(); });
    case '"':
      return static_cast<void>(string());
    default:
      if (!word("true") && !word("false") && !word("null")) (void)number_text();
  }
}

PARX_INLINE void reader::fail(std::string_view expected) const {
  const std::string_view before = text_.substr(0, position_);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t start = before.rfind('\n') + 1;  // npos + 1 is 0
  throw error(
      formatted("expected {} at line {}, column {}", expected, line, position_ - start + 1));
}

PARX_INLINE reader::level::level(reader& owner, char opening) : owner_(owner) {
  owner.expect(opening);
  if (owner.depth_ == max_depth)
    owner.fail(formatted("no more than {} arrays and objects in each other", max_depth));
  ++owner.depth_;
}

PARX_INLINE void reader::skip_space() noexcept {
  while (position_ < text_.size() &&
         std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos) {
    ++position_;
  }
}

PARX_INLINE bool reader::next_is(char wanted) noexcept {
  if (position_ == text_.size() || text_[position_] != wanted) return false;
  ++position_;
  return true;
}

PARX_INLINE void reader::expect(char wanted) {
  if (!accept(wanted)) fail(formatted("'{}'", wanted));
}

PARX_INLINE void reader::digits() {
  const std::size_t begin = position_;
  while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9')
    ++position_;
  if (position_ == begin) fail("a digit");
}

PARX_INLINE void reader::escape(std::string& result) {
  constexpr std::string_view names = "\"\\/bfnrt";
  constexpr std::string_view values = "\"\\/\b\f\n\r\t";
  const char c = take();
  if (const auto known = names.find(c); known != std::string_view::npos) {
    result += values[known];
    return;
  }
  if (c != 'u') fail("an escape sequence of JSON");
  std::uint32_t code = hex_unit();
  if (code >= 0xD800 && code < 0xDC00) {
    if (take() != '\\' || take() != 'u') fail("the second half of a surrogate pair");
    const std::uint32_t low = hex_unit();
    if (low < 0xDC00 || low >= 0xE000) fail("the second half of a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code < 0xE000) {
    fail("the first half of a surrogate pair");
  }
  detail::append_utf8(result, code);
}

PARX_INLINE std::uint32_t reader::hex_unit() {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = take();
    std::uint32_t digit = 0;
    if (std::from_chars(&c, &c + 1, digit, 16).ec != std::errc{}) fail("four hexadecimal digits");
    value = value << 4U | digit;
  }
  return value;
}

}  // namespace parx::json
