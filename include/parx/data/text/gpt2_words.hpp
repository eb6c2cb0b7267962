// gpt2_words: GPT-2's pieces of text, which its merges never join across.
//
// The regular expression, by hand, with no back-tracking:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Bytes that are no UTF-8 are of the third kind. The pieces put together are the text. Pure.
// Source: openai/gpt-2, src/encoder.py.
#pragma once

#include <cstddef>
#include <string_view>

#include <parx/data/text/unicode.hpp>

namespace parx::inline PARX_ABI::data {

namespace detail {

enum class gpt2_kind { letter, number, space, other };

struct gpt2_character {
  gpt2_kind kind;
  std::size_t length;
};

/// Bytes of the piece that `text`, which is not empty, begins with.
[[nodiscard]] std::size_t gpt2_word_length(std::string_view text) noexcept;

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

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/gpt2_words_impl.hpp>
#endif
