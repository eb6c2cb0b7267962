// global_mean: the mean of a metric over all ranks. As for gradients, sums and counts are added
// over the ranks, then divided once.
#pragma once

#include <array>
#include <concepts>

#include <parx/comm/collectives/all_reduce.hpp>

namespace parx::inline PARX_ABI {

/// Collective. The mean over all ranks of a metric such as a loss or an accuracy; each rank passes
/// the sum of its values and their number. Counts may differ between ranks. Returns 0 if all are 0.
[[nodiscard]] inline double global_mean(process_group& group, double sum, double count,
                                        call_site site = call_site::current()) {
  std::array<double, 2> total{sum, count};
  all_reduce(group, total, {}, site);
  return total[1] == 0 ? 0 : total[0] / total[1];
}

/// A metric with members `sum` and `count`, such as weighted_loss.
template <typename F>
concept sum_and_count = requires(const F& figure) {
  { figure.count } -> std::convertible_to<double>;
  requires std::convertible_to<decltype(figure.sum), double> || requires {
    { figure.sum.item() } -> std::convertible_to<double>;
  };
};

/// Collective. The same for a metric that has its sum and count:
/// `print0(world, "loss {}\n", global_mean(world, loss))`.
template <sum_and_count Figure>
[[nodiscard]] double global_mean(process_group& group, const Figure& figure,
                                 call_site site = call_site::current()) {
  if constexpr (std::convertible_to<decltype(figure.sum), double>) {
    return global_mean(group, static_cast<double>(figure.sum), static_cast<double>(figure.count),
                       site);
  } else {
    return global_mean(group, static_cast<double>(figure.sum.item()),
                       static_cast<double>(figure.count), site);
  }
}

}  // namespace parx
