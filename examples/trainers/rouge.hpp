// rouge_l: compares a summary with a reference: the F1 of the longest common subsequence of their
// words.
//
// Words are the runs of a-z and 0-9 in the lower-cased text. Scores are those of the rouge_score
// package (google-research/rouge, rougeL without stemming). Pure. Source: Lin, ROUGE: A Package for
// Automatic Evaluation of Summaries (2004), section 3.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/check.hpp>

namespace examples {

struct rouge_score {
  double precision = 0;
  double recall = 0;
  double f1 = 0;
};

/// The words of `text` as ROUGE counts them.
[[nodiscard]] inline std::vector<std::string> rouge_words(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char each : text) {
    const char c = each >= 'A' && each <= 'Z' ? static_cast<char>(each + 32) : each;
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (is_word && !inside) words.emplace_back();
    if (is_word) words.back().push_back(c);
    inside = is_word;
  }
  return words;
}

/// The score of `candidate` against `reference`; 0 where either has no words.
[[nodiscard]] inline rouge_score rouge_l(std::string_view candidate, std::string_view reference) {
  const auto made = rouge_words(candidate);
  const auto wanted = rouge_words(reference);
  if (made.empty() || wanted.empty()) return {};
  // row[j]: the length of the common subsequence of the words so far and the first j wanted words.
  std::vector<std::size_t> row(wanted.size() + 1, 0);
  for (const std::string& word : made) {
    std::size_t diagonal = 0;
    for (std::size_t j = 1; j <= wanted.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = word == wanted[j - 1] ? diagonal + 1 : std::max(above, row[j - 1]);
      diagonal = above;
    }
  }
  const auto common = static_cast<double>(row.back());
  if (common == 0) return {};
  const double precision = common / static_cast<double>(made.size());
  const double recall = common / static_cast<double>(wanted.size());
  return {precision, recall, 2 * precision * recall / (precision + recall)};
}

/// The mean F1 over pairs. Throws usage_error unless there are as many of both.
[[nodiscard]] inline double mean_rouge_l(std::span<const std::string> candidates,
                                         std::span<const std::string> references) {
  parx::require(candidates.size() == references.size(), "rouge_l: {} candidates for {} references",
                candidates.size(), references.size());
  double sum = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    sum += rouge_l(candidates[i], references[i]).f1;
  return candidates.empty() ? 0 : sum / static_cast<double>(candidates.size());
}

}  // namespace examples
