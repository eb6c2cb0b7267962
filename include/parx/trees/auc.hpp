// exact_auc: the area under the ROC curve of rows that are spread over ranks.
//
// Each rank sums its weights by prediction and class. The predictions are cut into as many ranges
// as there are ranks, at regular samples of each rank's own, and each range goes to one rank as a
// whole. There a walk upwards counts, for each prediction, the positive weight times twice the
// negative weight below it plus the negative weight that is equal to it; a rank begins with what
// the lower ranges hold. Weights are integers and products have 128 bits, so the figure is the one
// of a sort of all rows.
// Source of the cut: Shi and Schaeffer 1992, "Parallel sorting by regular sampling".
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_to_all.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/core/error.hpp>
#include <parx/trees/cuts.hpp>
#include <parx/trees/selection.hpp>
#include <parx/trees/table.hpp>

namespace parx::inline PARX_ABI::trees {

namespace detail {

__extension__ using uint128 = unsigned __int128;

/// The weights of the rows that have one prediction.
struct scored_weight {
  std::uint64_t key;
  std::uint64_t positive;
  std::uint64_t negative;
};
inline constexpr std::size_t words_of_entry = 3;

/// Ascending, an entry a key.
inline void merge_keys(std::vector<scored_weight>& entries) {
  std::sort(entries.begin(), entries.end(),
            [](const scored_weight& a, const scored_weight& b) { return a.key < b.key; });
  std::size_t made = 0;
  for (const scored_weight& each : entries) {
    if (made > 0 && entries[made - 1].key == each.key) {
      entries[made - 1].positive += each.positive;
      entries[made - 1].negative += each.negative;
    } else {
      entries[made++] = each;
    }
  }
  entries.resize(made);
}

/// Collective. Takes the entries of this rank's range from all ranks.
inline void exchange_ranges(process_group& group, std::vector<scored_weight>& entries) {
  const auto ranks = static_cast<std::size_t>(group.size());
  if (ranks == 1) return;
  std::vector<std::uint64_t> mine;
  for (std::size_t i = 0; i < ranks && !entries.empty(); ++i) {
    mine.push_back(entries[i * entries.size() / ranks].key);
  }
  std::vector<std::uint64_t> samples;
  for (const auto& each : all_gather_object(group, mine)) {
    samples.insert(samples.end(), each.begin(), each.end());
  }
  std::sort(samples.begin(), samples.end());
  std::vector<std::uint64_t> counts(ranks, 0);
  std::size_t begin = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::size_t end = entries.size();
    if (rank + 1 < ranks && !samples.empty()) {
      const std::uint64_t bound = samples[(rank + 1) * samples.size() / ranks];
      end = static_cast<std::size_t>(
          std::lower_bound(
              entries.begin(), entries.end(), bound,
              [](const scored_weight& each, std::uint64_t key) { return each.key < key; }) -
          entries.begin());
    }
    counts[rank] = words_of_entry * (end - begin);
    begin = end;
  }
  std::vector<std::uint64_t> incoming(ranks);
  all_to_all(group, counts, incoming);
  const std::uint64_t words = std::accumulate(incoming.begin(), incoming.end(), std::uint64_t{0});
  std::vector<scored_weight> arrived(words / words_of_entry);
  const auto as_words = [](std::vector<scored_weight>& of) {
    return std::span(reinterpret_cast<std::uint64_t*>(of.data()), words_of_entry * of.size());
  };
  all_to_all_v(group, as_words(entries), counts, as_words(arrived), incoming);
  entries = std::move(arrived);
  merge_keys(entries);
}

}  // namespace detail

/// Collective. `predictions` are one a row; labels above 0 are positive. NaN where a class has no
/// rows. All ranks throw errc::bad_data where a prediction is NaN.
[[nodiscard]] inline double exact_auc(process_group& group, std::span<const float> predictions,
                                      const table& rows) {
  using detail::uint128;
  const std::vector<std::uint32_t> weights = integer_weights(group, rows);
  std::vector<detail::scored_weight> entries;
  std::uint64_t has_nan = 0;
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows.rows); ++row) {
    const std::uint64_t weight = weights.empty() ? 1 : weights[row];
    const bool positive = rows.label[row] > 0;
    if (std::isnan(predictions[row])) {
      has_nan = 1;
      continue;
    }
    entries.push_back({key_of(predictions[row]), positive ? weight : 0, positive ? 0 : weight});
  }
  detail::merge_keys(entries);
  detail::exchange_ranges(group, entries);
  std::array<std::uint64_t, 3> own{0, 0, has_nan};
  for (const auto& each : entries) own[0] += each.positive, own[1] += each.negative;
  std::uint64_t below = 0, positive = 0, negative = 0;
  int rank = 0;
  for (const auto& [of_rank, others, nan] : all_gather_object(group, own)) {
    if (rank++ < group.rank()) below += others;
    positive += of_rank, negative += others;
    if (nan != 0) throw_error(errc::bad_data, "auc: a prediction is NaN");
  }
  uint128 wins = 0;  // twice the weight of the pairs that are in order
  for (const auto& each : entries) {
    wins += uint128{each.positive} * (uint128{2} * below + each.negative);
    below += each.negative;
  }
  uint128 all_wins = 0;
  for (const uint128 each : all_gather_object(group, wins)) all_wins += each;
  if (positive == 0 || negative == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(all_wins) /
         (2 * static_cast<double>(positive) * static_cast<double>(negative));
}

}  // namespace parx::trees
