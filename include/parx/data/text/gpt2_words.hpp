// gpt2_words: splits a text into GPT-2's pieces, whose borders its merges never cross.
//
// The regular expression, by hand, with no back-tracking:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Bytes that are not UTF-8 match [^\s\p{L}\p{N}]. The pieces joined are the text. Pure. Source:
// openai/gpt-2, src/encoder.py.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <parx/core/abi.hpp>
#include <parx/data/text/unicode.hpp>

namespace parx::inline PARX_ABI::data {

namespace detail {

enum class gpt2_kind { letter, number, space, other };

struct gpt2_character {
  gpt2_kind kind;
  std::size_t length;  ///< in bytes
};

[[nodiscard]] inline gpt2_character gpt2_character_at(std::string_view text) noexcept {
  const decoded_character next = decode_character(text);
  if (!next.valid) return {gpt2_kind::other, next.bytes};
  const gpt2_kind kind = is_letter(next.code)   ? gpt2_kind::letter
                         : is_space(next.code)  ? gpt2_kind::space
                         : is_number(next.code) ? gpt2_kind::number
                                                : gpt2_kind::other;
  return {kind, next.bytes};
}

/// The length in bytes of the first piece of `text`, which is not empty.
[[nodiscard]] inline std::size_t gpt2_word_length(std::string_view text) noexcept {
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

}  // namespace detail

/// Calls use(piece) for each piece of `text`, in order.
template <typename Use>
void gpt2_words(std::string_view text, Use&& use) {
  while (!text.empty()) {
    const std::size_t length = detail::gpt2_word_length(text);
    use(text.substr(0, length));
    text.remove_prefix(length);
  }
}

}  // namespace parx::data
