// metrics: figures by which a model is judged, of all ranks' rows and the same on every rank.
//
// Sums are exact: what each row counts is scaled by the greatest of all ranks to a fixed point of
// 62 - ceil(log2 n) bits for n rows, so that n of them fit into 64 bits, and summed as integers. So
// a figure does not depend on who holds which row, and early stopping stops at the same round at
// any number of ranks. auc is that of all rows, not the mean of the ranks' (auc.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/check.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>
#include <parx/trees/auc.hpp>
#include <parx/trees/lambdarank.hpp>
#include <parx/trees/objectives.hpp>

namespace parx::inline PARX_ABI::trees {

/// A figure of all ranks' rows by which a model is judged. `value` is collective: given this rank's
/// predictions, rows x outputs, it returns the figure of all ranks' rows, the same on every rank.
struct metric {
  std::string name;
  bool higher_is_better = false;
  std::function<double(process_group& group, std::span<const float> predictions, const table& rows)>
      value;
};

/// Collective. The sum of of_row(0) ... of_row(rows - 1) over all ranks; NaN where one of them is
/// not finite.
template <typename OfRow>
[[nodiscard]] double exact_sum(process_group& group, std::int64_t rows, const OfRow& of_row) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::array<double, 1> greatest{0};
  for (std::int64_t row = 0; row < rows; ++row) {
    const double value = std::abs(of_row(row));
    greatest[0] = std::isfinite(value) ? std::max(greatest[0], value) : infinity;
  }
  std::array<std::int64_t, 1> all{rows};
  all_reduce(group, greatest, {.op = reduce_op::max});
  all_reduce(group, all);
  if (greatest[0] == 0) return 0;
  if (!std::isfinite(greatest[0])) return std::numeric_limits<double>::quiet_NaN();
  const int bits = 62 - static_cast<int>(std::bit_width(static_cast<std::uint64_t>(all[0])));
  const int shift = bits - std::ilogb(greatest[0]) - 1;
  std::array<std::int64_t, 1> sum{0};
  for (std::int64_t row = 0; row < rows; ++row) {
    sum[0] += std::llrint(std::ldexp(of_row(row), shift));
  }
  all_reduce(group, sum);
  return std::ldexp(static_cast<double>(sum[0]), -shift);
}

namespace detail {

/// The mean of loss(predictions of the row, its label) over all rows, by weight.
template <typename Loss>
[[nodiscard]] double weighted_mean(process_group& group, std::span<const float> predictions,
                                   const table& rows, const Loss& loss) {
  const auto count = static_cast<std::size_t>(rows.rows);
  const std::size_t width = count == 0 ? 0 : predictions.size() / count;
  const auto weight = [&](std::int64_t row) {
    return rows.weight.empty() ? 1.0
                               : static_cast<double>(rows.weight[static_cast<std::size_t>(row)]);
  };
  const double sum = exact_sum(group, rows.rows, [&](std::int64_t row) {
    const auto at = static_cast<std::size_t>(row);
    return weight(row) * loss(predictions.subspan(at * width, width), rows.label[at]);
  });
  return sum / exact_sum(group, rows.rows, weight);
}

/// -log(p), of at least 1e-16.
[[nodiscard]] inline double surprise(double p) { return -std::log(std::max(p, 1e-16)); }

/// The mean of loss(prediction, label), in double, or of loss(predictions of the row, label).
template <typename Loss>
[[nodiscard]] metric mean_metric(std::string name, const Loss& loss) {
  const auto of_row = [loss](std::span<const float> p, float y) {
    if constexpr (std::is_invocable_v<Loss, double, double>) {
      return loss(static_cast<double>(p[0]), static_cast<double>(y));
    } else {
      return loss(p, static_cast<std::size_t>(y));
    }
  };
  return {std::move(name), false,
          [of_row](process_group& group, std::span<const float> predictions, const table& rows) {
            return weighted_mean(group, predictions, rows, of_row);
          }};
}

[[nodiscard]] inline std::size_t best_class(std::span<const float> of_row) {
  return static_cast<std::size_t>(std::max_element(of_row.begin(), of_row.end()) - of_row.begin());
}

/// Of one query: what its first `places` rows have of the best that they could.
[[nodiscard]] inline double ndcg_of(std::span<const float> margins, std::span<const float> labels,
                                    std::size_t places) {
  const double best = best_dcg(labels, places);
  if (best == 0) return 1;
  const std::vector<std::size_t> order = places_of(margins);
  double sum = 0;
  for (std::size_t i = 0; i < std::min(places, order.size()); ++i) {
    sum += dcg_gain(labels[order[i]]) * dcg_discount(i);
  }
  return sum / best;
}

}  // namespace detail

/// The root of the mean squared difference.
[[nodiscard]] inline metric rmse() {
  metric made = detail::mean_metric("rmse", [](double p, double y) { return (p - y) * (p - y); });
  made.value = [mean = made.value](process_group& group, std::span<const float> predictions,
                                   const table& rows) {
    return std::sqrt(mean(group, predictions, rows));
  };
  return made;
}
[[nodiscard]] inline metric mae() {
  return detail::mean_metric("mae", [](double p, double y) { return std::abs(p - y); });
}
/// The pinball loss.
[[nodiscard]] inline metric quantile_loss(double alpha) {
  return detail::mean_metric("quantile", [alpha](double p, double y) {
    return y >= p ? alpha * (y - p) : (alpha - 1) * (y - p);
  });
}
/// Of probabilities of class 1.
[[nodiscard]] inline metric logloss() {
  return detail::mean_metric("logloss", [](double p, double y) {
    return y * detail::surprise(p) + (1 - y) * detail::surprise(1 - p);
  });
}
/// The part of the rows on whose wrong side of the threshold the prediction is.
[[nodiscard]] inline metric error(double threshold = 0.5) {
  return detail::mean_metric(threshold == 0.5 ? "error" : formatted("error@{}", threshold),
                             [threshold](double p, double y) { return p > threshold ? 1 - y : y; });
}
/// Of the probabilities of all classes.
[[nodiscard]] inline metric mlogloss() {
  return detail::mean_metric("mlogloss", [](std::span<const float> p, std::size_t label) {
    return detail::surprise(static_cast<double>(p[label]));
  });
}
/// The part of the rows whose most probable class is another.
[[nodiscard]] inline metric merror() {
  return detail::mean_metric("merror", [](std::span<const float> p, std::size_t label) {
    return detail::best_class(p) == label ? 0.0 : 1.0;
  });
}
/// -log of Poisson's probability of the count, given its mean.
[[nodiscard]] inline metric poisson_nloglik() {
  return detail::mean_metric("poisson-nloglik", [](double p, double count) {
    const double mean = std::max(p, 1e-16);
    return mean - count * std::log(mean) + std::lgamma(count + 1);
  });
}
/// The area under the ROC curve: how probable it is that a row of class 1 has a greater prediction
/// than one of class 0. NaN where a class has no rows.
[[nodiscard]] inline metric auc() {
  return {"auc", true,
          [](process_group& group, std::span<const float> predictions, const table& rows) {
            return exact_auc(group, predictions, rows);
          }};
}
/// The mean over all queries; of the first `places` rows of each, 0: of all. A query without
/// relevant rows counts 1.
[[nodiscard]] inline metric ndcg(int places = 0) {
  require(places >= 0, "ndcg: {} places", places);
  const auto first =
      places == 0 ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(places);
  return {places == 0 ? "ndcg" : formatted("ndcg@{}", places), true,
          [first](process_group& group, std::span<const float> predictions, const table& rows) {
            const auto queries = static_cast<std::int64_t>(rows.group.size());
            const std::int64_t count = queries == 0 ? 0 : queries - 1;
            const double sum = exact_sum(group, count, [&](std::int64_t query) {
              const auto at = static_cast<std::size_t>(query);
              const auto begin = static_cast<std::size_t>(rows.group[at]);
              const auto size = static_cast<std::size_t>(rows.group[at + 1]) - begin;
              return size == 0 ? 1.0
                               : detail::ndcg_of(predictions.subspan(begin, size),
                                                 std::span(rows.label).subspan(begin, size), first);
            });
            std::array<std::int64_t, 1> all{count};
            all_reduce(group, all);
            return sum / static_cast<double>(all[0]);
          }};
}

/// By XGBoost's name, such as "auc", "error@0.7", "ndcg@5". Throws usage_error for another.
[[nodiscard]] inline metric find_metric(std::string_view name) {
  const std::size_t at = std::min(name.find('@'), name.size());
  const std::string_view kind = name.substr(0, at);
  const auto after = parx::detail::parse_number<double>(name.substr(std::min(at + 1, name.size())));
  const bool bare = at == name.size();
  for (const auto make : {rmse, mae, logloss, mlogloss, merror, auc, poisson_nloglik}) {
    if (metric made = make(); bare && made.name == kind) return made;
  }
  if (kind == "error" && (bare || after)) return error(after.value_or(0.5));
  if (kind == "quantile" && (bare || after)) return quantile_loss(after.value_or(0.5));
  const double places = after.value_or(0);
  if (kind == "ndcg" && (bare || (places >= 1 && places <= 1e9 && places == std::floor(places)))) {
    return ndcg(static_cast<int>(places));
  }
  throw_usage(
      "\"{}\" is none of the metrics rmse, mae, logloss, error, error@t, auc, mlogloss, "
      "merror, poisson-nloglik, quantile@alpha, ndcg, ndcg@n",
      printable(name));
}

/// The one that XGBoost takes for an objective of this name where none is named.
[[nodiscard]] inline metric default_metric(const objective& loss) {
  return loss.metric() == "quantile" ? quantile_loss(loss.leaf_quantile().value_or(0.5))
                                     : find_metric(loss.metric());
}

}  // namespace parx::trees
