// json::reader: reads JSON front to back without building a value (a pull parser).
//
// The caller asks for what it expects (object, array, string, number) and skips the rest. Safe with
// untrusted files: no recursion beyond `max_depth`, no allocation beyond the text's own length,
// only UTF-8. Every error names line and column. Pure. Source: RFC 8259.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::json {

/// A text is not the JSON that it should be; what() says what was expected, at which line and
/// column.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How deep arrays and objects may be nested, the outermost included.
inline constexpr std::size_t max_depth = 64;

class reader {
 public:
  /// `text` must outlive the reader.
  explicit reader(std::string_view text) noexcept : text_(text) {}

  /// Calls member(key) for each member of an object; member must read the value.
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

  /// Calls element() for each element of an array; element must read it.
  template <typename Element>
  void array(Element&& element) {
    const level deeper(*this, '[');
    if (accept(']')) return;
    do {
      element();
    } while (accept(','));
    expect(']');
  }

  /// An array of non-negative integers.
  [[nodiscard]] std::vector<std::uint64_t> numbers();

  /// A non-negative integer.
  [[nodiscard]] std::uint64_t number();

  /// Any number, as it is written.
  [[nodiscard]] std::string_view number_text();

  [[nodiscard]] std::string string();

  /// Whether `wanted` (true, false or null) comes next; if so, reads it.
  [[nodiscard]] bool word(std::string_view wanted);

  /// The first character of the next value: one of {["tfn-0123456789 in valid JSON. 0 at the end of
  /// the text.
  [[nodiscard]] char peek() {
    skip_space();
    return position_ == text_.size() ? '\0' : text_[position_];
  }

  /// Reads the next value and drops it.
  void skip();

  /// Throws unless only spaces are left.
  void end() {
    skip_space();
    if (position_ != text_.size()) fail("the end");
  }

  /// Throws json::error: "expected `expected` at line 3, column 17".
  [[noreturn]] void fail(std::string_view expected) const;

 private:
  /// An array or object that is being read: reads its opening bracket and counts the depth.
  class level {
   public:
    level(reader& owner, char opening);
    ~level() { --owner_.depth_; }
    level(const level&) = delete;
    level& operator=(const level&) = delete;

   private:
    reader& owner_;
  };

  [[nodiscard]] static bool is_plain(char c) noexcept {
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
  }
  void skip_space() noexcept;
  [[nodiscard]] bool next_is(char wanted) noexcept;
  [[nodiscard]] bool accept(char wanted) noexcept {
    skip_space();
    return next_is(wanted);
  }
  void expect(char wanted);
  char take() {
    if (position_ == text_.size()) fail("more text");
    return text_[position_++];
  }
  void digits();

  void escape(std::string& result);
  [[nodiscard]] std::uint32_t hex_unit();

  std::string_view text_;
  std::size_t position_ = 0;
  std::size_t depth_ = 0;
};

}  // namespace parx::json

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/json_reader_impl.hpp>
#endif
