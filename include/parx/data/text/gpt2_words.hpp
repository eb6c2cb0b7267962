// gpt2_words: splits a text into GPT-2's pieces, whose borders its merges never cross.
//
// The regular expression, by hand, with no back-tracking:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Bytes that are not UTF-8 match [^\s\p{L}\p{N}]. The pieces joined are the text. Pure. Source:
// openai/gpt-2, src/encoder.py.
#pragma once

#include <cstddef>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::data {

namespace detail {

/// The length in bytes of the first piece of `text`, which is not empty.
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
