// latency: times one operation at a time, as OSU's collective benchmarks do.
//
// Before every operation there is a barrier, which is not timed. The latency of an operation is
// that of its slowest rank, so p99 and max are times that a program really waited.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <bench/figures.hpp>
#include <bench/measure.hpp>
#include <bench/place.hpp>

namespace bench {

namespace detail {

/// Seconds of each of `count` operations, ascending. Collective.
template <typename Run>
[[nodiscard]] std::vector<double> single_times(backend& ranks, int count, Run run) {
  const call meeting{};
  std::vector<double> times(static_cast<std::size_t>(count));
  for (double& time : times) {
    ranks.run(meeting);
    const stopwatch watch;
    run();
    time = watch.seconds();
  }
  ranks.max_over_ranks(times);
  std::sort(times.begin(), times.end());
  return times;
}

/// The smallest of the ascending times that is not exceeded by the fraction `part` (0 to 1) of
/// them.
[[nodiscard]] inline double percentile(std::span<const double> times, double part) {
  const auto rank = std::ceil(part * static_cast<double>(times.size()));
  return times[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

[[nodiscard]] inline double median_of(std::span<const double> times) {
  return percentile(times, 0.5);
}

/// The number of operations: as given, or as many as fit into the budget, barriers included.
template <typename Run>
[[nodiscard]] int single_count(backend& ranks, const options& given, Run run) {
  static constexpr int least = 10;
  static constexpr int most = 10'000;
  const auto with_barrier = [&] {
    ranks.run({});
    run();
  };
  double each = estimate(ranks, given.warmup.value_or(10), with_barrier);
  each = std::max(each, 1e-7);
  return given.iterations.value_or(fitting(given.budget, each, least, most));
}

}  // namespace detail

inline void run_latency(backend& ranks, const options& given) {
  static constexpr double micro = 1e6;
  const buffer_pair buffers(ranks, given, sizes_of(given).back());
  for_each_choice(ranks, given, [&](operation op, const std::string& algorithm) {
    const figures table(ranks, given, fmt::format("{} ({})", name_of(op), algorithm),
                        "one at a time after a barrier; the slowest rank's microseconds",
                        {{"bytes", 0},
                         {"avg_us"},
                         {"min_us"},
                         {"max_us"},
                         {"p50_us"},
                         {"p99_us"},
                         {"iterations", 0}});
    for_each_shape(ranks, given, op, [&](const shape& elements) {
      const call next =
          place_call(op, usual_placement(ranks, op), elements, given, ranks.rank(), buffers);
      clear(next);
      const auto run = [&] { ranks.run(next); };
      const int count = detail::single_count(ranks, given, run);
      const auto times = detail::single_times(ranks, count, run);
      double sum = 0;
      for (const double time : times) sum += time;
      const std::array row{static_cast<double>(elements.whole() * parx::size_of(given.type)),
                           sum / count * micro,
                           times.front() * micro,
                           times.back() * micro,
                           detail::median_of(times) * micro,
                           detail::percentile(times, 0.99) * micro,
                           static_cast<double>(count)};
      table.add(row);
    });
  });
}

}  // namespace bench
