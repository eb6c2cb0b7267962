// Definitions of pair_merger.hpp.
#pragma once

#include <parx/data/text/detail/pair_merger.hpp>

namespace parx::inline PARX_ABI::data::detail {

PARX_INLINE void pair_merger::add_word(std::span<const token_id> symbols, std::uint64_t count) {
  if (symbols.size() < 2) return;
  words_.push_back({{symbols.begin(), symbols.end()}, static_cast<std::int64_t>(count)});
}

PARX_INLINE void pair_merger::change(token_id a, token_id b, std::int64_t amount, std::size_t w) {
  pair_state& pair = pairs_[pair_key(a, b)];
  pair.count += amount;
  if (amount > 0 && (pair.words.empty() || pair.words.back() != w))
    pair.words.push_back(static_cast<std::uint32_t>(w));
}

PARX_INLINE void pair_merger::apply(std::uint64_t key, token_id joined) {
  const token_id a = first_of(key);
  const token_id b = second_of(key);
  const std::vector<std::uint32_t> holders = std::move(pairs_[key].words);
  pairs_[key] = {};
  std::vector<std::uint64_t> grown;
  for (const std::uint32_t w : holders) {
    std::vector<token_id>& symbols = words_[w].symbols;
    const std::int64_t count = words_[w].count;
    std::size_t out = 0;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (i + 1 == symbols.size() || symbols[i] != a || symbols[i + 1] != b) {
        symbols[out++] = symbols[i];
        continue;
      }
      if (out > 0) {
        if (pair_key(symbols[out - 1], a) != key) change(symbols[out - 1], a, -count, w);
        change(symbols[out - 1], joined, count, w);
        grown.push_back(pair_key(symbols[out - 1], joined));
      }
      if (i + 2 < symbols.size()) {
        if (pair_key(b, symbols[i + 2]) != key) change(b, symbols[i + 2], -count, w);
        change(joined, symbols[i + 2], count, w);
        grown.push_back(pair_key(joined, symbols[i + 2]));
      }
      symbols[out++] = joined;
      ++i;
    }
    symbols.resize(out);
  }
  std::sort(grown.begin(), grown.end());
  grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
  for (const std::uint64_t each : grown) {
    if (const std::int64_t count = pairs_[each].count; count > 0) heap_.push({count, each});
  }
}

}  // namespace parx::data::detail
