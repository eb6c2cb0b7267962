// cached_vocabulary: a vocabulary is made from texts once, by one process of a host; the others
// read it from the folder in which token_cache.hpp keeps rows: each word is a row of its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <parx/data/text/token_cache.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace examples {

struct cached_words {
  parx::data::vocabulary words;
  parx::data::cache_use cached = parx::data::cache_use::none;
};

/// The vocabulary for `key` from `folder`; if it is not there, `build()` returns it. `key` must
/// stand for all that it is made from. An empty folder name: no cache. Blocks and throws as
/// parx::data::cached_rows() does.
template <typename Build>
[[nodiscard]] cached_words cached_vocabulary(const std::string& folder, std::uint64_t key,
                                             Build&& build) {
  const parx::data::token_rows rows =
      parx::data::cached_rows(folder, key, [&](parx::data::token_rows_data& made) {
        const parx::data::vocabulary words = build();
        for (const std::string& word : words.tokens()) {
          for (const char byte : word) made.ids.push_back(static_cast<unsigned char>(byte));
          made.end_row();
        }
      });
  std::vector<std::string> words;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string& word = words.emplace_back();
    for (const parx::data::token_id byte : rows[i]) word.push_back(static_cast<char>(byte));
  }
  return {parx::data::vocabulary(std::move(words)), rows.cached()};
}

}  // namespace examples
