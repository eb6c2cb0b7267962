// rouge_l: compares a summary with a reference: the F1 of the longest common subsequence of their
// words.
//
// Words are the runs of a-z and 0-9 in the lower-cased text. Scores are those of the rouge_score
// package (google-research/rouge, rougeL without stemming). Pure. Source: Lin, ROUGE: A Package for
// Automatic Evaluation of Summaries (2004), section 3.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::data {

struct rouge_score {
  double precision = 0;
  double recall = 0;
  double f1 = 0;
};

/// The words of `text` as ROUGE counts them.
[[nodiscard]] std::vector<std::string> rouge_words(std::string_view text);

/// The score of `candidate` against `reference`; 0 where either has no words.
[[nodiscard]] rouge_score rouge_l(std::string_view candidate, std::string_view reference);

/// The mean F1 over pairs. Throws usage_error unless there are as many of both.
[[nodiscard]] double mean_rouge_l(std::span<const std::string> candidates,
                                  std::span<const std::string> references);

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/rouge_impl.hpp>
#endif
