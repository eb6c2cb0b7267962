// sum_over: the metrics of an evaluation (nn/metrics.hpp), added up over ranks.
#pragma once

#include <cstddef>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/nn/metrics.hpp>

namespace parx::inline PARX_ABI::train {

using nn::metric;
using nn::metrics;

using parx::on_any_rank;

/// Collective over `job`. Sums over `data`, the ranks with different samples. All ranks of the job
/// get the bits of its rank 0, so that decisions based on them are the same on all ranks.
inline void sum_over(process_group& data, process_group& job, metrics& figures,
                     call_site site = call_site::current()) {
  std::vector<double> numbers;
  for (const metric& each : figures) {
    numbers.push_back(each.value.sum);
    numbers.push_back(each.value.count);
  }
  parx::all_reduce(data, numbers, {}, site);
  if (&data != &job) parx::broadcast(job, numbers, {.root = 0}, site);
  for (std::size_t i = 0; i < figures.size(); ++i) {
    figures[i].value = {.sum = numbers[2 * i], .count = numbers[2 * i + 1]};
  }
}

}  // namespace parx::train
