// The parts of a plan for stages and cut layers: the time of 1F1B, the heaviest stage, and the link
// that an axis of a mesh uses. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/plan/cluster.hpp>
#include <parx/plan/cut.hpp>
#include <parx/plan/shapes.hpp>

namespace parx::inline PARX_ABI {

/// Seconds of a step under 1F1B. `forward` and `backward` are those of one stage and one
/// micro-batch, `hop` those of a message between stages. Without hops it is (m + p - 1) (f + b).
[[nodiscard]] inline double one_f_one_b_seconds(int stages, int microbatches, double forward,
                                                double backward, double hop = 0) {
  require(stages > 0 && microbatches > 0,
          "1F1B: {} stages and {} micro-batches: at least 1 of each", stages, microbatches);
  const auto p = static_cast<std::size_t>(stages), m = static_cast<std::size_t>(microbatches);
  constexpr double unknown = std::numeric_limits<double>::infinity();
  // When each stage has computed the result, and the gradient, of each micro-batch.
  std::vector<std::vector<double>> results(p, std::vector<double>(m, unknown)), gradients = results;
  std::vector<double> free(p);
  std::vector<std::size_t> done(p);
  // Action `k` of a stage: whether it is a forward, and its micro-batch.
  const auto action = [&](std::size_t stage, std::size_t k) -> std::pair<bool, std::size_t> {
    const std::size_t ahead = std::min(p - 1 - stage, m), pairs = m - ahead;
    if (k < ahead) return {true, k};
    const std::size_t behind = k - ahead;
    if (behind >= 2 * pairs) return {false, behind - pairs};
    return {behind % 2 == 0, behind / 2 + (behind % 2 == 0 ? ahead : 0)};
  };
  for (std::size_t left = 2 * p * m; left > 0;) {
    for (std::size_t s = 0; s < p; ++s) {
      for (; done[s] < 2 * m; ++done[s], --left) {
        const auto [is_forward, i] = action(s, done[s]);
        const double given = is_forward ? (s == 0 ? 0 : results[s - 1][i] + hop)
                                        : (s + 1 == p ? results[s][i] : gradients[s + 1][i] + hop);
        if (given == unknown) break;
        free[s] = std::max(free[s], given) + (is_forward ? forward : backward);
        (is_forward ? results : gradients)[s][i] = free[s];
      }
    }
  }
  return *std::max_element(free.begin(), free.end());
}

/// The parameters of the heaviest of `stages` stages (balanced by bytes), as one of the `parts`
/// ranks over which layers are cut has them: matrices are cut, vectors are not. Units after the
/// first are layers. Parameters of the root form one block before the layers and one after them, in
/// the order of the model.
[[nodiscard]] inline model_shapes heaviest_stage(const model_shapes& whole, int stages, int parts) {
  const std::size_t layers = whole.units.size() - 1;
  require(stages > 0 && static_cast<std::size_t>(stages) <= layers + 2,
          "plan: {} stages of {} layers: give each stage one", stages, layers);
  // Blocks: what comes before the layers, each layer, and what comes after them.
  std::vector<double> weights(layers + 2);
  std::vector<std::size_t> block_of(whole.parameters.size());
  std::size_t last = 0;
  for (std::size_t i = 0; i < whole.parameters.size(); ++i) {
    const planned_parameter& each = whole.parameters[i];
    last = each.unit > 0 ? each.unit : last == 0 ? 0 : layers + 1;
    block_of[i] = last;
    weights[last] += static_cast<double>(each.bytes());
  }
  const std::vector<std::size_t> cut = cut_by_weight(weights, static_cast<std::size_t>(stages));
  std::size_t begin = 0, end = 0;
  double most = -1;
  for (std::size_t s = 0; s < cut.size(); ++s) {
    const std::size_t behind = s + 1 < cut.size() ? cut[s + 1] : weights.size();
    double sum = 0;
    for (std::size_t b = cut[s]; b < behind; ++b) sum += weights[b];
    if (sum > most) most = sum, begin = cut[s], end = behind;
  }
  model_shapes stage{.units = whole.units, .parameters = {}};
  for (std::size_t i = 0; i < whole.parameters.size(); ++i) {
    if (block_of[i] < begin || block_of[i] >= end) continue;
    planned_parameter part = whole.parameters[i];
    if (part.extents.rank() > 1) {
      const auto ranks = static_cast<std::size_t>(parts);
      part.extents[0] = (part.extents[0] + ranks - 1) / ranks;
    }
    stage.parameters.push_back(std::move(part));
  }
  return stage;
}

/// A rank's part of the link along an axis of `size` ranks whose neighbours are `stride` ranks
/// apart, while all lines of the mesh use the link at the same time.
[[nodiscard]] inline plan_link link_along(const cluster& machine, int stride, int size) {
  const int of_host = machine.ranks_a_host();
  if (machine.hosts == 1 || stride * size <= of_host) return machine.memory_link;
  const int members = std::clamp(of_host / stride, 1, size);  // of a line, on one host
  plan_link shared = machine.network;
  shared.bytes_per_second /= std::max(of_host / members, 1);
  return shared;
}

}  // namespace parx
