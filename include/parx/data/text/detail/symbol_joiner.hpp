// symbol_joiner: the joining loop of byte-pair encodings. Joins the best pair of neighbours, the
// leftmost of equally good ones, until no pair is a token.
//
// A heap over a linked list: n log n, also for a word of a megabyte. Heap entries whose pair has
// changed since are skipped. Memory is reused from text to text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data::detail {

/// Worse(p, q): a pair with p is joined after one with q.
template <typename Priority, typename Worse = std::less<Priority>>
class symbol_joiner {
 public:
  struct token {
    Priority priority;
    token_id id;
  };

  void clear() noexcept { symbols_.clear(); }
  /// Appends a symbol; at most 2^31 - 1.
  void add(token_id id) {
    const auto last = static_cast<std::int32_t>(symbols_.size()) - 1;
    if (last >= 0) symbols_.back().next = last + 1;
    symbols_.push_back({id, last, none});
  }

  /// find(a, b): the token that takes the place of two symbols, as std::optional<token>.
  template <typename Find>
  void join(const Find& find) {
    heap_.clear();
    for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) offer(static_cast<std::int32_t>(i), find);
    while (!heap_.empty()) {
      const candidate best = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      symbol& left = at(best.at);
      if (left.next < 0 || left.id != best.left || at(left.next).id != best.right) continue;
      symbol& right = at(left.next);
      left.id = best.joined;
      left.next = right.next;
      if (right.next >= 0) at(right.next).previous = best.at;
      right = {no_token, none, none};
      offer(left.previous, find);
      offer(best.at, find);
    }
  }

  void append_to(std::vector<token_id>& ids) const {
    if (symbols_.empty()) return;
    for (std::int32_t i = 0; i != none; i = symbols_[static_cast<std::size_t>(i)].next) {
      ids.push_back(symbols_[static_cast<std::size_t>(i)].id);
    }
  }

 private:
  static constexpr std::int32_t none = -1;
  static constexpr token_id no_token = -1;

  struct symbol {
    token_id id;
    std::int32_t previous, next;  ///< their indices, or none
  };
  struct candidate {
    Priority priority;
    std::int32_t at;
    token_id left, right, joined;
    bool operator<(const candidate& other) const noexcept {
      return priority != other.priority ? Worse()(priority, other.priority) : at > other.at;
    }
  };

  [[nodiscard]] symbol& at(std::int32_t index) noexcept {
    return symbols_[static_cast<std::size_t>(index)];
  }
  /// Adds the pair that begins at `left` to the heap, if it is a token.
  template <typename Find>
  void offer(std::int32_t left, const Find& find) {
    if (left < 0 || at(left).next < 0) return;
    const token_id a = at(left).id;
    const token_id b = at(at(left).next).id;
    const std::optional<token> found = find(a, b);
    if (!found) return;
    heap_.push_back({found->priority, left, a, b, found->id});
    std::push_heap(heap_.begin(), heap_.end());
  }

  std::vector<symbol> symbols_;
  std::vector<candidate> heap_;
};

}  // namespace parx::data::detail
