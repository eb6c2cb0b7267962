// json::reader: takes JSON from a text front to back, without building anything.
//
// The caller says what it expects: object, array, string, number; what it has no use for it skips.
// Reads text from untrusted files: no recursion beyond `max_depth`, no allocation beyond the text's
// own length, only UTF-8. Every error names line and column. Pure. Source: RFC 8259.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::json {

/// A text is not the JSON that it should be; what() says what was expected, by line and column.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Arrays and objects in each other, the outermost included.
inline constexpr std::size_t max_depth = 64;

namespace detail {

/// Bytes of the UTF-8 character that `text` begins with; 0 where that is none. RFC 3629, section 4.
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) noexcept {
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

inline void append_utf8(std::string& result, std::uint32_t code) {
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

}  // namespace detail

class reader {
 public:
  /// `text` must outlive the reader.
  explicit reader(std::string_view text) noexcept : text_(text) {}

  /// Calls member(key) for each member of an object; member must take the value.
  template <typename Member>
  void object(Member&& member) {
    const level deeper(*this, '{');
    if (accept('}')) return;
    do {
      std::string key = string();
      expect(':');
      member(std::move(key));
    } while (accept(','));
    expect('}');
  }

  /// Calls element() for each element of an array; element must take it.
  template <typename Element>
  void array(Element&& element) {
    const level deeper(*this, '[');
    if (accept(']')) return;
    do {
      element();
    } while (accept(','));
    expect(']');
  }

  /// An array of whole numbers, none negative.
  [[nodiscard]] std::vector<std::uint64_t> numbers() {
    std::vector<std::uint64_t> result;
    array([&] { result.push_back(number()); });
    return result;
  }

  /// A whole number, not negative.
  [[nodiscard]] std::uint64_t number() {
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

  /// The text of any number, as it is written.
  [[nodiscard]] std::string_view number_text() {
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

  [[nodiscard]] std::string string() {
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

  /// Takes `word`, which is true, false or null, if it comes next.
  [[nodiscard]] bool word(std::string_view wanted) {
    skip_space();
    if (text_.substr(position_, wanted.size()) != wanted) return false;
    position_ += wanted.size();
    return true;
  }

  /// The first character of what comes next: one of {["tfn-0123456789 where the text is JSON. 0 at
  /// the end.
  [[nodiscard]] char peek() {
    skip_space();
    return position_ == text_.size() ? '\0' : text_[position_];
  }

  /// Leaves out the value that comes next.
  void skip() {
    switch (peek()) {
      case '{': return object([this](const std::string& /*key*/) { skip(); });
      case '[': return array([this] { skip(); });
      case '"': return static_cast<void>(string());
      default:
        if (!word("true") && !word("false") && !word("null")) (void)number_text();
    }
  }

  /// Throws unless only spaces are left.
  void end() {
    skip_space();
    if (position_ != text_.size()) fail("the end");
  }

  /// Throws json::error: "expected `expected` at line 3, column 17".
  [[noreturn]] void fail(std::string_view expected) const {
    const std::string_view before = text_.substr(0, position_);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t start = before.rfind('\n') + 1;  // npos + 1 is 0
    throw error(fmt::format("expected {} at line {}, column {}", expected, line,
                            position_ - start + 1));
  }

 private:
  /// An array or object that is being read.
  class level {
   public:
    level(reader& owner, char opening) : owner_(owner) {
      owner.expect(opening);
      if (owner.depth_ == max_depth)
        owner.fail(fmt::format("no more than {} arrays and objects in each other", max_depth));
      ++owner.depth_;
    }
    ~level() { --owner_.depth_; }
    level(const level&) = delete;
    level& operator=(const level&) = delete;

   private:
    reader& owner_;
  };

  [[nodiscard]] static bool is_plain(char c) noexcept {
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
  }
  void skip_space() noexcept {
    while (position_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos) {
      ++position_;
    }
  }
  [[nodiscard]] bool next_is(char wanted) noexcept {
    if (position_ == text_.size() || text_[position_] != wanted) return false;
    ++position_;
    return true;
  }
  [[nodiscard]] bool accept(char wanted) noexcept {
    skip_space();
    return next_is(wanted);
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(fmt::format("'{}'", wanted));
  }
  char take() {
    if (position_ == text_.size()) fail("more text");
    return text_[position_++];
  }
  void digits() {
    const std::size_t begin = position_;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9')
      ++position_;
    if (position_ == begin) fail("a digit");
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
    detail::append_utf8(result, code);
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

  std::string_view text_;
  std::size_t position_ = 0;
  std::size_t depth_ = 0;
};

}  // namespace parx::json
