// lambdarank: gradients for ranking the rows of each query by their relevance.
//
// Take the rows of a query in the order of their margins. A pair of rows i, j with labels y_i > y_j
// costs log(1 + exp(m_j - m_i)) times what NDCG would change by if the two changed places,
//   |(2^y_i - 2^y_j) (d_i - d_j)| / IDCG,   d_k = 1 / log2(k + 2) for the place k from 0,
// where IDCG is the best sum of (2^y - 1) d. As in XGBoost 2, a pair has one of the first
// num_pair_per_sample places; the change of NDCG is divided by 0.01 + |m_i - m_j|, and the query's
// sum L of all |gradients| is damped to log2(1 + L). (XGBoost 1.7 draws pairs at random instead.)
// Source: Burges 2010, "From RankNet to LambdaRank to LambdaMART".
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <parx/core/parallel_for.hpp>
#include <parx/trees/gradient.hpp>
#include <parx/trees/table.hpp>

namespace parx::inline PARX_ABI::trees {

/// NDCG of queries (table::group), labels 0, 1, ... 31. A query lies on one rank as a whole, and
/// weighs as its first row.
struct lambdarank {
  int num_pair_per_sample = 32;
};

/// What the row at `place`, from 0, counts.
[[nodiscard]] inline double dcg_discount(std::size_t place) noexcept {
  return 1 / std::log2(static_cast<double>(place) + 2);
}
[[nodiscard]] inline double dcg_gain(float label) noexcept {
  return std::exp2(static_cast<double>(label)) - 1;
}
/// The greatest sum of gain times discount that the first `places` rows can have.
[[nodiscard]] inline double best_dcg(std::span<const float> labels, std::size_t places) {
  std::vector<float> sorted(labels.begin(), labels.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double sum = 0;
  for (std::size_t i = 0; i < std::min(places, sorted.size()); ++i) {
    sum += dcg_gain(sorted[i]) * dcg_discount(i);
  }
  return sum;
}
/// The rows in the order of their margins, greatest first; equal ones in their own order.
[[nodiscard]] inline std::vector<std::size_t> places_of(std::span<const float> margins) {
  std::vector<std::size_t> order(margins.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [margins](std::size_t a, std::size_t b) { return margins[a] > margins[b]; });
  return order;
}

namespace detail {

inline void gradients_of_query(const lambdarank& given, std::span<const float> margins,
                               std::span<const float> labels, float weight,
                               std::span<gradient> out) {
  const std::size_t rows = labels.size();
  const auto top = std::min(rows, static_cast<std::size_t>(given.num_pair_per_sample));
  std::fill(out.begin(), out.end(), gradient{0, 0});
  const double best = best_dcg(labels, top);
  if (best == 0) return;
  const std::vector<std::size_t> order = places_of(margins);
  const bool distinct = margins[order.front()] != margins[order.back()];
  std::vector<double> g(rows, 0), h(rows, 0);
  double sum = 0;
  for (std::size_t a = 0; a < top; ++a) {
    for (std::size_t b = a + 1; b < rows; ++b) {
      std::size_t high = order[a], low = order[b];
      if (labels[high] == labels[low]) continue;
      if (labels[high] < labels[low]) std::swap(high, low);
      const double apart = static_cast<double>(margins[high]) - static_cast<double>(margins[low]);
      const double p = 1 / (1 + std::exp(-apart));
      double change = std::abs((dcg_gain(labels[high]) - dcg_gain(labels[low])) *
                               (dcg_discount(a) - dcg_discount(b))) /
                      best;
      if (distinct) change /= std::abs(apart) + 0.01;
      const double lambda = (p - 1) * change;
      const double hessian = std::max(p * (1 - p), 1e-16) * change * 2;
      g[high] += lambda, g[low] -= lambda;
      h[high] += hessian, h[low] += hessian;
      sum -= 2 * lambda;
    }
  }
  const double scale = (sum > 0 ? std::log2(1 + sum) / sum : 1.0) * static_cast<double>(weight);
  for (std::size_t i = 0; i < rows; ++i) {
    out[i] = {static_cast<float>(g[i] * scale), static_cast<float>(h[i] * scale)};
  }
}

}  // namespace detail

/// Local. A pair a row.
inline void lambdarank_gradients(const lambdarank& given, std::span<const float> margins,
                                 const table& rows, std::span<gradient> out) {
  const std::size_t queries = rows.group.empty() ? 0 : rows.group.size() - 1;
  parallel_for(queries, 1, [&](std::size_t first, std::size_t last) {
    for (std::size_t query = first; query < last; ++query) {
      const auto begin = static_cast<std::size_t>(rows.group[query]);
      const auto count = static_cast<std::size_t>(rows.group[query + 1]) - begin;
      if (count == 0) continue;
      detail::gradients_of_query(
          given, margins.subspan(begin, count), std::span(rows.label).subspan(begin, count),
          rows.weight.empty() ? 1.0F : rows.weight[begin], out.subspan(begin, count));
    }
  });
}

}  // namespace parx::trees
