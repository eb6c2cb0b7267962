// vocabulary_builder: builds a WordPiece vocabulary from texts, where there is no vocab.txt.
//
//   parx::data::vocabulary_builder builder;
//   for (const std::string& text : texts) builder.add(text);
//   parx::data::wordpiece_tokenizer tokenizer(builder.build({.vocab_size = 8000}));
//
// Words are counted as BERT splits them; then the most frequent neighbours are joined until the
// vocabulary is full. Every rank that sees the same texts builds the same vocabulary. Semantics:
// Hugging Face tokenizers, WordPieceTrainer. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <parx/data/text/bert_words.hpp>
#include <parx/data/text/detail/pair_merger.hpp>
#include <parx/data/text/vocabulary.hpp>
#include <parx/data/text/wordpiece.hpp>

namespace parx::inline PARX_ABI::data {

struct vocabulary_options {
  std::size_t vocab_size = 30'000;
  std::uint64_t min_frequency = 2;     ///< a pair must occur this often to be joined
  std::size_t limit_alphabet = 1'000;  ///< only this many most frequent characters get a token
  std::vector<std::string> special_tokens = {bert_special_tokens.begin(),
                                             bert_special_tokens.end()};
};

class vocabulary_builder {
 public:
  explicit vocabulary_builder(letter_case letters = letter_case::uncased) : letters_(letters) {}

  /// Counts the words of a text. Those of more than 100 characters are left out: they are [UNK].
  void add(std::string_view text);
  void add_word(std::string_view word, std::uint64_t count);
  /// Different words counted so far.
  [[nodiscard]] std::size_t words() const noexcept { return counts_.size(); }

  /// Special tokens first, then single characters in the order of their codes, first as the start
  /// of a word, then within one ("##a"), then joined pieces in the order of their joining. Throws
  /// usage_error when the size has no room for special tokens and characters, or nothing was added.
  [[nodiscard]] vocabulary build(const vocabulary_options& options = {}) const;

 private:
  using word_counts = std::map<std::string_view, std::uint64_t>;
  using character_counts = std::map<std::uint32_t, std::uint64_t>;

  /// The `limit` most frequent characters of the words; of equally frequent ones the lower codes.
  static character_counts alphabet(const word_counts& words, std::size_t limit);

  template <typename Use>
  static void each_character(std::string_view word, Use&& use) {
    while (!word.empty()) {
      const decoded_character next = decode_character(word);
      use(next.code);
      word.remove_prefix(next.bytes);
    }
  }
  static std::string as_text(std::uint32_t code);

  letter_case letters_;
  std::unordered_map<std::string, std::uint64_t, detail::text_hash, std::equal_to<>> counts_;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/vocabulary_builder_impl.hpp>
#endif
