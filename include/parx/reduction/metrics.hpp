// The metrics of an evaluation (nn/metrics.hpp), over ranks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/core/split.hpp>
#include <parx/nn/metrics.hpp>

namespace parx::inline PARX_ABI {

/// The sums and counts one after the other.
[[nodiscard]] inline std::vector<double> numbers_of(const nn::metrics& figures) {
  std::vector<double> numbers;
  for (const nn::metric& each : figures) {
    numbers.insert(numbers.end(), {each.value.sum, each.value.count});
  }
  return numbers;
}

/// Collective. Gives all ranks the metrics of rank `root`; those of the others may have no names.
inline void broadcast(process_group& group, nn::metrics& figures, int root,
                      call_site site = call_site::current()) {
  std::vector<double> numbers = numbers_of(figures);
  std::string names;
  for (const nn::metric& each : figures) names += each.name + "\n";
  broadcast_object(group, names, {.root = root}, site);
  broadcast_object(group, numbers, {.root = root}, site);
  figures.clear();
  for (std::size_t i = 0; 2 * i < numbers.size(); ++i) {
    figures.emplace_back(std::string(detail::split_at(names, '\n')[i]),
                         nn::tally{numbers[2 * i], numbers[2 * i + 1]});
  }
}

/// Collective over `job`. Sums over `data`, the ranks with different samples. All ranks of the job
/// get the bits of its rank 0, so that decisions based on them are the same on all ranks.
inline void sum_over(process_group& data, process_group& job, nn::metrics& figures,
                     call_site site = call_site::current()) {
  std::vector<double> numbers = numbers_of(figures);
  all_reduce(data, numbers, {}, site);
  for (std::size_t i = 0; i < figures.size(); ++i) {
    figures[i].value = {.sum = numbers[2 * i], .count = numbers[2 * i + 1]};
  }
  if (&data != &job) broadcast(job, figures, 0, site);
}

}  // namespace parx
