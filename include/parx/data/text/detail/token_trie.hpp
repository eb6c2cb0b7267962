// token_trie: finds the longest token that a text begins with.
//
// The edges of the trie lie in one open-addressing table keyed by (node, byte): building needs no
// sorting, a step is one multiplication and, nearly always, one cache line. Immutable once built.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::data::detail {

class token_trie {
 public:
  struct match {
    std::int32_t id = -1;    ///< -1: no token begins the text
    std::size_t length = 0;  ///< bytes of it
  };

  /// `bytes`: the sum of the tokens' lengths, which bounds the number of edges.
  explicit token_trie(std::size_t bytes = 0)
      : shift_(64 - static_cast<unsigned>(std::bit_width(2 * bytes + 2))),
        edges_(std::size_t{1} << (64 - shift_)) {}

  void add(std::string_view token, std::int32_t id) {
    edge* last = nullptr;
    for (const char c : token) {
      const std::uint64_t wanted = key(last == nullptr ? 0 : last->child, c);
      last = &edges_[slot(wanted)];
      if (last->key == 0) *last = {wanted, ++nodes_, -1};
    }
    if (last != nullptr) last->id = id;
  }

  [[nodiscard]] match longest(std::string_view text) const noexcept {
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

  /// Calls special(id) for each token in `text`, and plain(piece) for the text before, between and
  /// after them, in order. `starts`: the first bytes of the tokens.
  template <typename Plain, typename Special>
  void split(std::string_view text, std::string_view starts, Plain&& plain,
             Special&& special) const {
    std::size_t begin = 0;
    for (std::size_t at = text.find_first_of(starts); at != std::string_view::npos;) {
      const match found = longest(text.substr(at));
      if (found.id < 0) {
        at = text.find_first_of(starts, at + 1);
        continue;
      }
      plain(text.substr(begin, at - begin));
      special(found.id);
      begin = at + found.length;
      at = text.find_first_of(starts, begin);
    }
    plain(text.substr(begin));
  }

 private:
  struct edge {
    std::uint64_t key = 0;  ///< 0: no edge
    std::uint32_t child = 0;
    std::int32_t id = -1;  ///< the token that ends here, or -1
  };

  [[nodiscard]] static std::uint64_t key(std::uint32_t node, char c) noexcept {
    return (std::uint64_t{node} + 1) << 8U | static_cast<unsigned char>(c);
  }
  /// Where the edge is, or the free place where it would be.
  [[nodiscard]] std::size_t slot(std::uint64_t wanted) const noexcept {
    std::size_t at = wanted * 0x9E3779B97F4A7C15 >> shift_;
    while (edges_[at].key != wanted && edges_[at].key != 0) at = (at + 1) & (edges_.size() - 1);
    return at;
  }

  unsigned shift_;
  std::vector<edge> edges_;
  std::uint32_t nodes_ = 0;
};

}  // namespace parx::data::detail
