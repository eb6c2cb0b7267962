// The figures by which classifiers and language models are judged, as sums that add up over batches
// and ranks. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>

#include <parx/core/check.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::data {

/// exp of a mean loss in nats per token; infinite where a double cannot hold it.
[[nodiscard]] inline double perplexity(double mean_loss) { return std::exp(mean_loss); }

/// How many rows of `logits`, [rows, classes], are largest at their label, and how many count: rows
/// of weight 0 do not. Sums, so that ranks and batches add up. Ties go to the first class.
struct correct_count {
  double correct = 0;
  double count = 0;
};
template <typename T, std::integral Label>
[[nodiscard]] correct_count count_correct(const tensor<T>& logits, const tensor<Label>& labels,
                                          std::span<const float> weights = {}) {
  require(
      logits.rank() == 2 && labels.rank() == 1 && logits.extent(0) == labels.size() &&
          logits.extent(1) > 0 && (weights.empty() || weights.size() == labels.size()),
      "count_correct: logits of shape {}, labels of shape {} and {} weights do not belong together",
      to_string(logits.shape()), to_string(labels.shape()), weights.size());
  const tensor<T> rows = logits.contiguous();
  const tensor<Label> wanted = labels.contiguous();
  const std::size_t classes = logits.extent(1);
  correct_count result;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double weight = weights.empty() ? 1 : static_cast<double>(weights[i]);
    const T* const row = rows.data() + i * classes;
    const auto best = std::max_element(row, row + classes) - row;
    result.count += weight;
    if (best == static_cast<std::ptrdiff_t>(wanted.data()[i])) result.correct += weight;
  }
  return result;
}

}  // namespace parx::data
