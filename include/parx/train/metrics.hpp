// metrics: the results of an evaluation: named (sum, count) pairs, added up over batches and ranks
// and divided once.
//
//   [&](auto& model, auto& batch) -> parx::train::metrics {
//     const auto logits = model(batch.x);
//     return {{"loss", parx::nn::cross_entropy(logits, batch.y, {.row_weights = batch.weights})},
//             {"accuracy", parx::nn::accuracy(logits, batch.y, {.row_weights = batch.weights})}};
//   }
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/loss.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/loss.hpp>

namespace parx::inline PARX_ABI::train {

struct metric {
  metric(std::string its_name, nn::tally its_value) : name(std::move(its_name)), value(its_value) {}
  template <typename T>
  metric(std::string its_name, const weighted_loss<T>& loss)
      : metric(std::move(its_name), nn::tally{static_cast<double>(loss.sum.item()), loss.count}) {}

  std::string name;
  nn::tally value;
};

using metrics = std::vector<metric>;

/// Adds the metrics of another batch. Throws usage_error unless it has the same names in order.
inline void add(metrics& total, const metrics& more) {
  if (total.empty()) {
    total = more;
    return;
  }
  require(total.size() == more.size(),
          "an evaluation measured {} figures of one batch and {} of another", total.size(),
          more.size());
  for (std::size_t i = 0; i < total.size(); ++i) {
    require(total[i].name == more[i].name,
            "an evaluation measured \"{}\" of one batch and \"{}\" of another in its place",
            total[i].name, more[i].name);
    total[i].value += more[i].value;
  }
}

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
