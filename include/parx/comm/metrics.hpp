// global_mean: metrics by the same rule as gradients: add sums, add counts, divide once.
#pragma once

#include <array>

#include <parx/comm/collectives/all_reduce.hpp>

namespace parx {

/// Collective. The mean over all ranks of values that each rank has summed up: a loss, an accuracy.
/// Ranks may have different counts; 0 where all counts are 0.
[[nodiscard]] inline double global_mean(process_group& group, double sum, double count,
                                        call_site site = call_site::current()) {
  std::array<double, 2> total{sum, count};
  all_reduce(group, total, {}, site);
  return total[1] == 0 ? 0 : total[0] / total[1];
}

}  // namespace parx
