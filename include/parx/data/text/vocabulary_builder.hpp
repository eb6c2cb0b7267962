// vocabulary_builder: a WordPiece vocabulary from one's own texts, for those without a vocab.txt.
//
//   parx::data::vocabulary_builder builder;
//   for (const std::string& text : texts) builder.add(text);
//   parx::data::wordpiece_tokenizer tokenizer(builder.build({.vocab_size = 8000}));
//
// Words are counted as BERT splits them; then the most frequent neighbours are joined until the
// vocabulary is full. Every rank that sees the same texts builds the same vocabulary. Semantics:
// Hugging Face tokenizers, WordPieceTrainer. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/data/text/bert_words.hpp>
#include <parx/data/text/detail/pair_merger.hpp>
#include <parx/data/text/vocabulary.hpp>
#include <parx/data/text/wordpiece.hpp>

namespace parx::inline PARX_ABI::data {

struct vocabulary_options {
  std::size_t vocab_size = 30'000;
  std::uint64_t min_frequency = 2;     ///< a pair must occur this often to be joined
  std::size_t limit_alphabet = 1'000;  ///< characters that get a token; the most frequent ones
  std::vector<std::string> special_tokens = {bert_special_tokens.begin(),
                                             bert_special_tokens.end()};
};

class vocabulary_builder {
 public:
  explicit vocabulary_builder(letter_case letters = letter_case::uncased) : letters_(letters) {}

  /// Counts the words of a text. Those of more than 100 characters are left out: they are [UNK].
  void add(std::string_view text) {
    bert_words(text, letters_, [&](std::string_view word, bool too_long) {
      if (!too_long) add_word(word, 1);
    });
  }
  void add_word(std::string_view word, std::uint64_t count) {
    const auto found = counts_.find(word);
    if (found != counts_.end()) {
      found->second += count;
    } else {
      counts_.emplace(word, count);
    }
  }
  [[nodiscard]] std::size_t words() const noexcept { return counts_.size(); }

  /// Special tokens first, then single characters in the order of their codes, at the start of a
  /// word and ("##a") within one, then what was joined, in that order. Throws usage_error when the
  /// size has no room for special tokens and characters, or nothing was added.
  [[nodiscard]] vocabulary build(const vocabulary_options& options = {}) const {
    require(!counts_.empty(), "vocabulary_builder: there are no words; add() texts first");
    // In the order of the words, so that the result does not depend on the hash table's.
    const word_counts words(counts_.begin(), counts_.end());
    const character_counts characters = alphabet(words, options.limit_alphabet);

    std::vector<std::string> tokens = options.special_tokens;
    std::unordered_map<std::string, token_id> ids;
    const auto add_token = [&](std::string token) {
      const auto [found, is_new] = ids.emplace(token, static_cast<token_id>(tokens.size()));
      if (is_new) tokens.push_back(std::move(token));
      return found->second;
    };
    for (std::size_t id = 0; id < tokens.size(); ++id)
      ids.emplace(tokens[id], static_cast<token_id>(id));
    std::unordered_map<std::uint32_t, std::pair<token_id, token_id>> symbols;  // start, within
    for (const auto& [code, count] : characters) symbols[code].first = add_token(as_text(code));
    for (const auto& [code, count] : characters)
      symbols[code].second = add_token("##" + as_text(code));
    require(tokens.size() <= options.vocab_size,
            "vocabulary_builder: a vocabulary of {} has no room for {} special tokens and {} "
            "characters; raise vocab_size or lower limit_alphabet",
            options.vocab_size, options.special_tokens.size(), 2 * characters.size());

    detail::pair_merger merger;
    for (const auto& [word, count] : words) {
      std::vector<token_id> pieces;
      each_character(word, [&](std::uint32_t code) {
        const auto known = symbols.find(code);
        if (known != symbols.end())
          pieces.push_back(pieces.empty() ? known->second.first : known->second.second);
      });
      merger.add_word(pieces, count);
    }
    merger.run(
        options.min_frequency, [&] { return tokens.size() < options.vocab_size; },
        [&](token_id a, token_id b) {
          const auto& second = tokens[static_cast<std::size_t>(b)];
          return add_token(tokens[static_cast<std::size_t>(a)] + second.substr(2));
        });
    return vocabulary(std::move(tokens));
  }

 private:
  struct text_hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using word_counts = std::map<std::string_view, std::uint64_t>;
  using character_counts = std::map<std::uint32_t, std::uint64_t>;

  /// The `limit` most frequent characters of the words; of equally frequent ones the lower codes.
  static character_counts alphabet(const word_counts& words, std::size_t limit) {
    character_counts characters;
    for (const auto& [word, count] : words)
      each_character(word, [&, n = count](std::uint32_t code) { characters[code] += n; });
    std::vector<std::pair<std::uint64_t, std::uint32_t>> by_count;
    for (const auto& [code, count] : characters) by_count.emplace_back(count, code);
    std::stable_sort(by_count.begin(), by_count.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (std::size_t i = limit; i < by_count.size(); ++i) characters.erase(by_count[i].second);
    return characters;
  }

  template <typename Use>
  static void each_character(std::string_view word, Use&& use) {
    while (!word.empty()) {
      const decoded_character next = decode_character(word);
      use(next.code);
      word.remove_prefix(next.length);
    }
  }
  static std::string as_text(std::uint32_t code) {
    std::string text;
    append_character(text, code);
    return text;
  }

  letter_case letters_;
  std::unordered_map<std::string, std::uint64_t, text_hash, std::equal_to<>> counts_;
};

}  // namespace parx::data
