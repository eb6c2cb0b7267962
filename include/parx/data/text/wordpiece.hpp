// wordpiece_tokenizer: BERT's tokenizer. Text -> words (bert_words.hpp) -> the longest pieces that
// the vocabulary has, from the left; a piece within a word is written "##ing".
//
//   auto tokenizer = parx::data::wordpiece_tokenizer::read("vocab.txt");
//   auto input = tokenizer.encode("Oil prices soar", {.max_length = 128});
//
// A word without pieces, or of more than 100 characters, is [UNK]. Special tokens in the text are
// recognised. Same ids as Hugging Face's BertTokenizerFast. Immutable; any thread.
// Source: google-research/bert tokenization.py; Song et al., Fast WordPiece Tokenization (2021).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/data/text/bert_words.hpp>
#include <parx/data/text/detail/token_trie.hpp>
#include <parx/data/text/encoding.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

/// BERT's special tokens; [UNK], [CLS], [SEP] and [PAD] must be in a vocabulary.
inline constexpr std::array<std::string_view, 5> bert_special_tokens{"[PAD]", "[UNK]", "[CLS]",
                                                                     "[SEP]", "[MASK]"};

class wordpiece_tokenizer {
 public:
  /// `letters` as the vocabulary was made: uncased for bert-base-uncased. Throws usage_error when
  /// one of [UNK], [CLS], [SEP], [PAD] is not in the vocabulary.
  explicit wordpiece_tokenizer(vocabulary tokens, letter_case letters = letter_case::uncased)
      : wordpiece_tokenizer(std::move(tokens), letters, "the vocabulary") {}

  /// Reads a vocab.txt. Throws as vocabulary::read() and the constructor do.
  [[nodiscard]] static wordpiece_tokenizer read(const std::string& path,
                                                letter_case letters = letter_case::uncased);

  /// Appends the ids of `text`, without special tokens around it. Returns how many ill-formed
  /// pieces of UTF-8 were dropped.
  std::size_t encode(std::string_view text, std::vector<token_id>& ids) const;

  /// [CLS] text [SEP]. Throws usage_error when max_length has no room for special tokens,
  /// errc::bad_data when the text is too long and may not be cut.
  [[nodiscard]] encoding encode(std::string_view text, const encode_options& options = {}) const;

  /// [CLS] first [SEP] second [SEP]. Throws as above. longest_first compares what Hugging Face's
  /// tokenizers (since 0.23) compares: of each text the first words with max_length tokens or more.
  [[nodiscard]] encoding encode(std::string_view first, std::string_view second,
                                const encode_options& options = {}) const;

  /// The words, separated by spaces, without special tokens. Throws usage_error for an id outside
  /// the vocabulary.
  [[nodiscard]] std::string decode(std::span<const token_id> ids) const;

  [[nodiscard]] const vocabulary& tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }
  [[nodiscard]] const special_ids& special() const noexcept { return special_; }
  [[nodiscard]] token_id unknown_id() const noexcept { return unknown_; }
  /// Differs where the same text may get other ids: also between versions of the character tables.
  [[nodiscard]] std::uint64_t fingerprint() const {
    return tokens_.fingerprint() ^ stable_hash(letters_ == letter_case::cased
                                                   ? "wordpiece cased, tables 2"
                                                   : "wordpiece uncased, tables 2");
  }

 private:
  using token_trie = detail::token_trie;

  wordpiece_tokenizer(vocabulary tokens, letter_case letters, const std::string& origin);

  /// How many of `ids` the first words have that are together at least `count` tokens.
  [[nodiscard]] std::size_t words_with(std::span<const token_id> ids, std::size_t count) const;
  std::size_t encode_plain(std::string_view text, std::vector<token_id>& ids) const;

  vocabulary tokens_;
  letter_case letters_;
  token_id unknown_ = 0;
  special_ids special_;
  token_trie starts_;
  token_trie continues_;
  token_trie specials_;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/wordpiece_impl.hpp>
#endif
