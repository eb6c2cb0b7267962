// overlap: how much of an operation is hidden behind computation, as defined by OSU's nonblocking
// benchmarks.
//
//   pure     start, then wait at once
//   compute  a loop of arithmetic that takes about as long as `pure`
//   overall  start, compute, wait
//   overlap = 100 x (1 - (overall - compute) / pure), from 0 to 100
//
// OSU takes means; these are medians, because one lost time slice of 4 ms outweighs a hundred
// calls. With fewer cores than ranks and progress threads, operations cannot overlap with
// computation, and the figure is low.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include <bench/figures.hpp>
#include <bench/latency.hpp>
#include <bench/measure.hpp>
#include <bench/place.hpp>

namespace bench {

namespace detail {

/// Arithmetic on data in the first-level cache: it takes no memory bandwidth from the operation.
class busy_loop {
 public:
  /// Measures the loop's speed: the fastest of many short runs was not interrupted.
  busy_loop() {
    static constexpr std::size_t rounds = 200;
    run(rounds);
    for (int i = 0; i < 50; ++i) {
      const stopwatch watch;
      run(rounds);
      const double each = watch.seconds() / static_cast<double>(rounds);
      seconds_per_round_ = i == 0 ? each : std::min(seconds_per_round_, each);
    }
  }

  void run(std::size_t rounds) noexcept {
    for (std::size_t i = 0; i < rounds; ++i) {
      for (float& each : values_) each = each * 0.999f + 0.5f;
    }
    sink_ = values_[0];
  }

  /// Rounds that take about `seconds` on a core that nothing else uses.
  [[nodiscard]] std::size_t rounds_for(double seconds) const noexcept {
    return std::max<std::size_t>(1, static_cast<std::size_t>(seconds / seconds_per_round_));
  }

 private:
  std::array<float, 256> values_{};
  volatile float sink_ = 0;
  double seconds_per_round_ = 0;
};

}  // namespace detail

inline void run_overlap(backend& ranks, const options& given) {
  static constexpr double micro = 1e6;
  nonblocking* const beside = ranks.without_blocking();
  parx::require(beside != nullptr, "--mode overlap: {} has only operations that block",
                ranks.name());
  const buffer_pair buffers(ranks, given, sizes_of(given).back());
  detail::busy_loop work;
  for_each_choice(ranks, given, [&](operation op, const std::string& algorithm) {
    const figures table(
        ranks, given, fmt::format("{} ({})", name_of(op), algorithm),
        "overlap % = 100 (1 - (overall - compute) / pure); the slowest rank's median microseconds",
        {{"bytes", 0},
         {"overall_us"},
         {"compute_us"},
         {"pure_us"},
         {"overlap", 1},
         {"iterations", 0}});
    for_each_shape(ranks, given, op, [&](const shape& elements) {
      const call next =
          place_call(op, usual_placement(ranks, op), elements, given, ranks.rank(), buffers);
      clear(next);
      const auto pure_run = [&] {
        beside->start(next);
        beside->finish();
      };
      const int count = std::max(detail::single_count(ranks, given, pure_run) / 3, 5);
      const double pure = detail::median_of(detail::single_times(ranks, count, pure_run));
      const std::size_t rounds = work.rounds_for(pure);
      const double compute =
          detail::median_of(detail::single_times(ranks, count, [&] { work.run(rounds); }));
      const double overall = detail::median_of(detail::single_times(ranks, count, [&] {
        beside->start(next);
        work.run(rounds);
        beside->finish();
      }));
      const double overlap = std::max(0.0, 100 * (1 - (overall - compute) / pure));
      const std::array row{static_cast<double>(elements.whole() * parx::size_of(given.type)),
                           overall * micro,
                           compute * micro,
                           pure * micro,
                           std::min(overlap, 100.0),
                           static_cast<double>(count)};
      table.add(row);
    });
  });
}

}  // namespace bench
