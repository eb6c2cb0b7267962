// The part of JSON that a safetensors header is made of: objects, strings, arrays of whole numbers.
//
// Reads text from untrusted files: no recursion, no allocation beyond the text's own length.
// Pure. Source: RFC 8259.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace parx::detail {

/// `text` in quotes. Bytes from 0x80 on are passed through: text is UTF-8.
[[nodiscard]] inline std::string json_quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result += '"';
}

/// Thrown by json_reader; what() says what was expected at which byte.
class json_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Takes tokens from a text, front to back.
class json_reader {
 public:
  explicit json_reader(std::string_view text) : text_(text) {}

  /// Calls member(key) for each member of an object; member must take the value.
  template <typename Member>
  void object(Member&& member) {
    expect('{');
    if (accept('}')) return;
    do {
      std::string key = string();
      expect(':');
      member(std::move(key));
    } while (accept(','));
    expect('}');
  }

  [[nodiscard]] std::vector<std::uint64_t> numbers() {
    std::vector<std::uint64_t> result;
    expect('[');
    if (accept(']')) return result;
    do {
      result.push_back(number());
    } while (accept(','));
    expect(']');
    return result;
  }

  [[nodiscard]] std::uint64_t number() {
    skip_space();
    std::uint64_t value = 0;
    const char* const begin = text_.data() + position_;
    const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (code != std::errc{}) fail("a whole number below 2^64");
    position_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  [[nodiscard]] std::string string() {
    expect('"');
    std::string result;
    for (;;) {
      const char c = take();
      if (c == '"') return result;
      if (static_cast<unsigned char>(c) < 0x20) fail("no control character in a string");
      if (c == '\\') {
        escape(result);
      } else {
        result += c;
      }
    }
  }

  /// Throws unless only spaces are left.
  void end() {
    skip_space();
    if (position_ != text_.size()) fail("the end");
  }

  [[noreturn]] void fail(std::string_view expected) const {
    throw json_error(fmt::format("expected {} at byte {} of the header", expected, position_));
  }

 private:
  void skip_space() {
    while (position_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos) {
      ++position_;
    }
  }
  char take() {
    if (position_ == text_.size()) fail("more text");
    return text_[position_++];
  }
  [[nodiscard]] bool accept(char wanted) {
    skip_space();
    if (position_ == text_.size() || text_[position_] != wanted) return false;
    ++position_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(fmt::format("'{}'", wanted));
  }

  void escape(std::string& result) {
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
    append_utf8(result, code);
  }
  [[nodiscard]] std::uint32_t hex_unit() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = take();
      std::uint32_t digit = 0;
      if (std::from_chars(&c, &c + 1, digit, 16).ec != std::errc{}) fail("four hexadecimal digits");
      value = value << 4U | digit;
    }
    return value;
  }
  static void append_utf8(std::string& result, std::uint32_t code) {
    const auto put = [&](std::uint32_t byte) { result += static_cast<char>(byte); };
    const auto put_rest = [&](int groups) {
      while (groups-- > 0) put(0x80U | (code >> (6U * static_cast<unsigned>(groups)) & 0x3FU));
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

  std::string_view text_;
  std::size_t position_ = 0;
};

}  // namespace parx::detail
