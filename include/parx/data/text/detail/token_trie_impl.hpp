// Definitions of token_trie.hpp.
#pragma once

#include <parx/data/text/detail/token_trie.hpp>

namespace parx::inline PARX_ABI::data::detail {

PARX_INLINE void token_trie::add(std::string_view token, std::int32_t id) {
  edge* last = nullptr;
  for (const char c : token) {
    const std::uint64_t wanted = key(last == nullptr ? 0 : last->child, c);
    last = &edges_[slot(wanted)];
    if (last->key == 0) *last = {wanted, ++nodes_, -1};
  }
  if (last != nullptr) last->id = id;
}

PARX_INLINE token_trie::match token_trie::longest(std::string_view text) const noexcept {
  match best;
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const edge& next = edges_[slot(key(node, text[i]))];
    if (next.key == 0) break;
    node = next.child;
    if (next.id >= 0) best = {next.id, i + 1};
  }
  return best;
}

PARX_INLINE std::size_t token_trie::slot(std::uint64_t wanted) const noexcept {
  std::size_t at = wanted * 0x9E3779B97F4A7C15 >> shift_;
  while (edges_[at].key != wanted && edges_[at].key != 0) at = (at + 1) & (edges_.size() - 1);
  return at;
}

}  // namespace parx::data::detail
