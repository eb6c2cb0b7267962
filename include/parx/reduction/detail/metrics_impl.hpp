// Definitions of metrics.hpp.
#pragma once

#include <string>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/core/split.hpp>
#include <parx/reduction/metrics.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE std::vector<double> numbers_of(const nn::metrics& figures) {
  std::vector<double> numbers;
  for (const nn::metric& each : figures) {
    numbers.insert(numbers.end(), {each.value.sum, each.value.count});
  }
  return numbers;
}

PARX_INLINE void broadcast(process_group& group, nn::metrics& figures, int root, call_site site) {
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

PARX_INLINE void sum_over(process_group& data, process_group& job, nn::metrics& figures,
                          call_site site) {
  std::vector<double> numbers = numbers_of(figures);
  all_reduce(data, numbers, {}, site);
  for (std::size_t i = 0; i < figures.size(); ++i) {
    figures[i].value = {.sum = numbers[2 * i], .count = numbers[2 * i + 1]};
  }
  if (&data != &job) broadcast(job, figures, 0, site);
}

}  // namespace parx
