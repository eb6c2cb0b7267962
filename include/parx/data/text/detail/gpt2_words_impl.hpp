// Definitions of gpt2_words.hpp.
#pragma once

#include <array>

#include <parx/data/text/gpt2_words.hpp>
#include <parx/data/text/unicode.hpp>

namespace parx::inline PARX_ABI::data::detail {

enum class gpt2_kind { letter, number, space, other };

struct gpt2_character {
  gpt2_kind kind;
  std::size_t length;  ///< in bytes
};

[[nodiscard]] PARX_INLINE gpt2_character gpt2_character_at(std::string_view text) noexcept {
  const decoded_character next = decode_character(text);
  if (!next.valid) return {gpt2_kind::other, next.bytes};
  const gpt2_kind kind = is_letter(next.code)   ? gpt2_kind::letter
                         : is_space(next.code)  ? gpt2_kind::space
                         : is_number(next.code) ? gpt2_kind::number
                                                : gpt2_kind::other;
  return {kind, next.bytes};
}

PARX_INLINE std::size_t gpt2_word_length(std::string_view text) noexcept {
  if (text[0] == '\'') {
    constexpr std::array<std::string_view, 7> endings{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (const std::string_view ending : endings) {
      if (text.starts_with(ending)) return ending.size();
    }
  }
  std::size_t at = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const gpt2_character first = gpt2_character_at(text.substr(at));
  if (first.kind != gpt2_kind::space) {
    while (at < text.size()) {
      const gpt2_character next = gpt2_character_at(text.substr(at));
      if (next.kind != first.kind) break;
      at += next.length;
    }
    return at;
  }
  // White space: the last one before a word belongs to the next piece, unless it is the only one.
  std::size_t before_last = 0;
  for (at = 0; at < text.size();) {
    const gpt2_character next = gpt2_character_at(text.substr(at));
    if (next.kind != gpt2_kind::space) return before_last > 0 ? before_last : at;
    before_last = at;
    at += next.length;
  }
  return at;
}

}  // namespace parx::data::detail
