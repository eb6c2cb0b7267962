// pair_merger: the training loop of both vocabulary builders. Joins the most frequent pair of
// neighbouring symbols everywhere, again and again.
//
// Counts are kept up to date by looking only at the words that held the joined pair; the heap is
// corrected lazily (a pair's count only falls once its symbols exist). Of equally frequent pairs
// the one with the smaller numbers wins, so the result does not depend on hash order. Source:
// Hugging Face tokenizers, models/bpe/trainer.rs. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <span>
#include <unordered_map>
#include <vector>

#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data::detail {

/// Two neighbouring symbols as one number.
[[nodiscard]] inline std::uint64_t pair_key(token_id a, token_id b) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(a)} << 32U | static_cast<std::uint32_t>(b);
}

class pair_merger {
 public:
  void add_word(std::span<const token_id> symbols, std::uint64_t count) {
    if (symbols.size() < 2) return;
    words_.push_back({{symbols.begin(), symbols.end()}, static_cast<std::int64_t>(count)});
  }

  /// Calls join(a, b) for the next pair while `more()` returns true and a pair occurs at least
  /// `min_frequency` times; join returns the symbol that replaces the pair.
  template <typename More, typename Join>
  void run(std::uint64_t min_frequency, More&& more, Join&& join) {
    const auto enough = static_cast<std::int64_t>(std::max<std::uint64_t>(min_frequency, 1));
    for (std::size_t w = 0; w < words_.size(); ++w) {
      const word& each = words_[w];
      for (std::size_t i = 1; i < each.symbols.size(); ++i)
        change(each.symbols[i - 1], each.symbols[i], each.count, w);
    }
    for (const auto& [key, found] : pairs_) heap_.push({found.count, key});
    while (more() && !heap_.empty()) {
      const candidate best = heap_.top();
      heap_.pop();
      const std::int64_t now = pairs_[best.key].count;
      if (now != best.count) {
        if (now >= enough) heap_.push({now, best.key});
        continue;
      }
      if (now < enough) return;
      apply(best.key, join(first_of(best.key), second_of(best.key)));
    }
  }

 private:
  struct word {
    std::vector<token_id> symbols;
    std::int64_t count;
  };
  struct pair_state {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  ///< words that contain the pair, or once did
  };
  struct candidate {
    std::int64_t count;
    std::uint64_t key;
    bool operator<(const candidate& other) const noexcept {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  static token_id first_of(std::uint64_t key) noexcept { return static_cast<token_id>(key >> 32U); }
  static token_id second_of(std::uint64_t key) noexcept {
    return static_cast<token_id>(key & 0xFFFFFFFFU);
  }

  void change(token_id a, token_id b, std::int64_t amount, std::size_t w) {
    pair_state& pair = pairs_[pair_key(a, b)];
    pair.count += amount;
    if (amount > 0 && (pair.words.empty() || pair.words.back() != w))
      pair.words.push_back(static_cast<std::uint32_t>(w));
  }

  void apply(std::uint64_t key, token_id joined) {
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

  std::vector<word> words_;
  std::unordered_map<std::uint64_t, pair_state> pairs_;
  std::priority_queue<candidate> heap_;
};

}  // namespace parx::data::detail
