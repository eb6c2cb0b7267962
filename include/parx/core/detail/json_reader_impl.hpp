// Definitions of json_reader.hpp.
#pragma once

#include <algorithm>
#include <charconv>

#include <parx/core/formatted.hpp>
#include <parx/core/json_reader.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/utf8.hpp>

namespace parx::inline PARX_ABI::json {

PARX_INLINE std::vector<std::uint64_t> reader::numbers() {
  std::vector<std::uint64_t> result;
  array([&] { result.push_back(number()); });
  return result;
}

PARX_INLINE std::uint64_t reader::number() {
  const std::string_view text = number_text();
  if (const auto value = parx::detail::parse_number<std::uint64_t>(text)) return *value;
  position_ -= text.size();
  fail("a whole number below 2^64");
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
      const auto next = parx::detail::front_character(text_.substr(position_));
      if (next.code < 0x20) fail("no control character in a string");
      if (!next.valid) fail("UTF-8");
      result.append(text_, position_, next.bytes);
      position_ += next.bytes;
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
  parx::detail::append_utf8(result, code);
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
