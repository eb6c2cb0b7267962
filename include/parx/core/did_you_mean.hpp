// did_you_mean: the word of a list that a mistyped one was meant to be. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// The letters to insert, delete, exchange or swap with their neighbour to turn `a` into `b`.
/// Source: optimal string alignment; Boytsov, Indexing methods for approximate dictionary
/// searching, 2011.
[[nodiscard]] inline std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> edits(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) edits[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) edits[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      edits[i][j] = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1,
                              edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
      }
    }
  }
  return edits[a.size()][b.size()];
}

/// The one of `known` that is at most a third of its letters away from `word`; else the longest
/// that `word` ends in (num-train-epochs: epochs), or the shortest that begins with it (max:
/// max-steps). Empty if there is none.
[[nodiscard]] inline std::string did_you_mean(std::string_view word,
                                              const std::vector<std::string>& known) {
  std::string nearest, contained, begun;
  std::size_t fewest = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& each : known) {
    const std::size_t edits = edits_between(word, each);
    if (edits < fewest && edits < each.size()) {
      fewest = edits;
      nearest = each;
    }
    if (word.ends_with("-" + each) && each.size() > contained.size()) contained = each;
    if (word.size() > 2 && each.starts_with(word) && (begun.empty() || each.size() < begun.size()))
      begun = each;
  }
  return !nearest.empty() ? nearest : !contained.empty() ? contained : begun;
}

/// What follows "there is no ...": ": did you mean max-steps?", or a full stop.
[[nodiscard]] inline std::string meant_question(const std::string& meant) {
  return meant.empty() ? "." : ": did you mean " + meant + "?";
}

}  // namespace parx
