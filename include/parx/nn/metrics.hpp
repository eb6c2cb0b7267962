// metrics: the results of an evaluation: named (sum, count) pairs, added up over batches and ranks
// and divided once.
//
//   [](auto& logits, auto& batch) -> parx::nn::metrics {
//     return {{"loss", parx::nn::cross_entropy(logits, batch.y, {.row_weights = batch.weights})},
//             {"accuracy", parx::nn::accuracy(logits, batch.y, {.row_weights = batch.weights})}};
//   }
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/loss.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/loss.hpp>

namespace parx::inline PARX_ABI::nn {

struct metric {
  metric(std::string its_name, tally its_value) : name(std::move(its_name)), value(its_value) {}
  template <typename T>
  metric(std::string its_name, const weighted_loss<T>& loss)
      : metric(std::move(its_name), tally{static_cast<double>(loss.sum.item()), loss.count}) {}

  std::string name;
  tally value;
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

}  // namespace parx::nn
