// tokenizer: the concept that the text data sets require. wordpiece_tokenizer, byte_bpe_tokenizer,
// character_tokenizer and llama_tokenizer satisfy it; a class of your own can.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <parx/data/text/encoding.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

/// encode() appends the ids of a text; fingerprint() differs where the same text may get others.
template <typename T>
concept tokenizer = requires(const T& t, std::string_view text, std::vector<token_id>& ids,
                             std::span<const token_id> tokens) {
  t.encode(text, ids);
  { t.decode(tokens) } -> std::convertible_to<std::string>;
  { t.size() } -> std::convertible_to<std::size_t>;
  { t.special() } -> std::convertible_to<special_ids>;
  { t.fingerprint() } -> std::convertible_to<std::uint64_t>;
};

/// Appends the ids of `text`; returns how many ill-formed pieces of UTF-8 were dropped, if the
/// tokenizer drops any.
template <tokenizer Tokenizer>
std::size_t append_ids(const Tokenizer& tokenizer, std::string_view text,
                       std::vector<token_id>& ids) {
  if constexpr (std::same_as<decltype(tokenizer.encode(text, ids)), std::size_t>) {
    return tokenizer.encode(text, ids);
  } else {
    tokenizer.encode(text, ids);
    return 0;
  }
}

}  // namespace parx::data
