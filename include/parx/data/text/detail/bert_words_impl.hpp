// Definitions of bert_words.hpp.
#pragma once

#include <parx/data/text/bert_words.hpp>

namespace parx::inline PARX_ABI::data::detail {

PARX_INLINE const ascii_table& bert_ascii() noexcept {
  static const ascii_table table = [] {
    ascii_table made{};
    for (std::uint32_t c = 0; c < 256; ++c) {
      // To BERT vertical tab and form feed are control characters, tab and line breaks are space.
      const bool is_dropped = is_control(c) || c == 0x0B || c == 0x0C;
      made.kind[c] = c >= 0x80           ? ascii_kind::wide
                     : is_dropped        ? ascii_kind::dropped
                     : is_space(c)       ? ascii_kind::space
                     : is_punctuation(c) ? ascii_kind::punctuation
                                         : ascii_kind::letter;
      made.lower[c] = static_cast<char>(c < 0x80 ? to_lower(c) : c);
    }
    return made;
  }();
  return table;
}

PARX_INLINE void word_buffer::append_code(std::uint32_t code) noexcept {
  if (code < 0x80) return append(static_cast<char>(code));
  if (++characters_ > max_word_characters) return;
  const unsigned rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  bytes_[size_++] = static_cast<char>((0xFF00U >> (rest + 1) & 0xFFU) | code >> (6U * rest));
  for (unsigned i = rest; i-- > 0;)
    bytes_[size_++] = static_cast<char>(0x80U | (code >> (6U * i) & 0x3FU));
}

}  // namespace parx::data::detail
