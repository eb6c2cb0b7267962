// character_tokenizer: one token for each character that occurs in a text; the tokenizer of small
// character-level language models.
//
// Ids follow the order of the characters' codes. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <parx/data/text/encoding.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

class character_tokenizer {
 public:
  /// Each token is one character. Throws usage_error otherwise.
  explicit character_tokenizer(vocabulary tokens);

  /// A token for each character of `text`. Throws errc::bad_data where it is not UTF-8.
  [[nodiscard]] static character_tokenizer from_text(std::string_view text);

  /// Appends the ids of `text`. Throws errc::bad_data, with the place, for a character that has no
  /// token.
  void encode(std::string_view text, std::vector<token_id>& ids) const;
  [[nodiscard]] std::vector<token_id> encode(std::string_view text) const;

  [[nodiscard]] std::string decode(std::span<const token_id> ids) const;

  /// The tokenizer.json of the same tokenizer for Hugging Face's tokenizers: byte-pair encoding
  /// without merges.
  [[nodiscard]] std::string tokenizer_json() const;

  [[nodiscard]] const vocabulary& tokens() const noexcept { return tokens_; }
  /// There are none.
  [[nodiscard]] static special_ids special() noexcept { return {}; }
  [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }
  /// Differs where the same text may get other ids.
  [[nodiscard]] std::uint64_t fingerprint() const {
    return tokens_.fingerprint() ^ stable_hash("character");
  }

 private:
  vocabulary tokens_;
  std::vector<token_id> ascii_ = std::vector<token_id>(128, -1);
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/character_tokenizer_impl.hpp>
#endif
