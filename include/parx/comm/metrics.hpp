// global_mean: metrics by the same rule as gradients: add sums, add counts, divide once.
#pragma once

#include <array>
#include <concepts>

#include <parx/comm/collectives/all_reduce.hpp>

namespace parx::inline PARX_ABI {

/// Collective. The mean over all ranks of values that each rank has summed up: a loss, an accuracy.
/// Ranks may have different counts; 0 where all counts are 0.
[[nodiscard]] inline double global_mean(process_group& group, double sum, double count,
                                        call_site site = call_site::current()) {
  std::array<double, 2> total{sum, count};
  all_reduce(group, total, {}, site);
  return total[1] == 0 ? 0 : total[0] / total[1];
}

/// A figure as (sum, count): a weighted_loss, or a tally of right answers.
template <typename F>
concept sum_and_count = requires(const F& figure) {
  { figure.count } -> std::convertible_to<double>;
  requires std::convertible_to<decltype(figure.sum), double> || requires {
    { figure.sum.item() } -> std::convertible_to<double>;
  };
};

/// Collective. The same of a figure that knows its sum and its count:
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
