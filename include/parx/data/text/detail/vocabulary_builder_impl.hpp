// Definitions of vocabulary_builder.hpp.
#pragma once

#include <algorithm>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/data/text/vocabulary_builder.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE void vocabulary_builder::add(std::string_view text) {
  bert_words(text, letters_, [&](std::string_view word, bool too_long) {
    if (!too_long) add_word(word, 1);
  });
}

PARX_INLINE void vocabulary_builder::add_word(std::string_view word, std::uint64_t count) {
  const auto found = counts_.find(word);
  if (found != counts_.end()) {
    found->second += count;
  } else {
    counts_.emplace(word, count);
  }
}

PARX_INLINE vocabulary vocabulary_builder::build(const vocabulary_options& options) const {
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

PARX_INLINE vocabulary_builder::character_counts vocabulary_builder::alphabet(
    const word_counts& words, std::size_t limit) {
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

PARX_INLINE std::string vocabulary_builder::as_text(std::uint32_t code) {
  std::string text;
  append_character(text, code);
  return text;
}

}  // namespace parx::data
