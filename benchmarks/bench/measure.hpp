// measure: times operations that run back to back.
//
// After a warm-up and one synchronisation, the operations run back to back, as a program would
// issue them. Reported are the slowest rank's mean over all of them, as nccl-tests does with -a 3,
// and the distribution over up to 50 batches. (Single operations say little: if ranks share a core,
// one rank's slow operation is another's fast one.) All ranks run the same number of iterations.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include <bench/backend.hpp>
#include <bench/options.hpp>

namespace bench {

/// Times in microseconds.
struct timing {
  double mean = 0;          ///< the slowest rank's mean
  double rank_average = 0;  ///< the average of the ranks' means
  double rank_fastest = 0;  ///< the fastest rank's mean
  /// Median, minimum and p90 over the batches. A batch's time is its slowest rank's mean.
  double median = 0;
  double minimum = 0;
  double p90 = 0;
  double cores = 0;  ///< processor time of all ranks, waiting included, per wall time
  int iterations = 0;
};

namespace detail {

class stopwatch {
 public:
  [[nodiscard]] double seconds() const noexcept {
    return std::chrono::duration<double>(clock::now() - start_).count();
  }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point start_ = clock::now();
};

[[nodiscard]] inline double processor_seconds() noexcept {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// Mean seconds of `count` runs on the slowest rank.
template <typename Run>
[[nodiscard]] double estimate(backend& ranks, int count, Run run) {
  const stopwatch watch;
  for (int i = 0; i < count; ++i) run();
  double seconds = watch.seconds() / std::max(count, 1);
  ranks.max_over_ranks({&seconds, 1});
  return std::max(seconds, 1e-8);
}

[[nodiscard]] inline int fitting(double seconds, double each, int least, int most) noexcept {
  return static_cast<int>(std::clamp(seconds / each, double(least), double(most)));
}

}  // namespace detail

/// Collective. `run` runs the operation once.
template <typename Run>
[[nodiscard]] timing measure(backend& ranks, const options& wanted, Run run) {
  using namespace detail;
  static constexpr int least_iterations = 5;
  static constexpr int most_iterations = 100'000;
  static constexpr int most_batches = 50;
  // The first runs open connections and grow buffers; more runs only improve the estimate.
  double each = estimate(ranks, wanted.warmup.value_or(3), run);
  if (!wanted.warmup) each = estimate(ranks, fitting(wanted.budget / 10, each, 1, 1000), run);
  const int fit =
      wanted.iterations.value_or(fitting(wanted.budget, each, least_iterations, most_iterations));
  const int batch = (fit + most_batches - 1) / most_batches;
  const int iterations = wanted.iterations ? fit : fit / batch * batch;

  std::vector<double> times(static_cast<std::size_t>((iterations + batch - 1) / batch));
  double start = 0;
  ranks.max_over_ranks({&start, 1});  // synchronises
  const double processor_start = processor_seconds();
  const stopwatch watch;
  double before = 0;
  int done = 0;
  for (double& time : times) {
    const int until = std::min(done + batch, iterations);
    const int size = until - done;
    for (; done < until; ++done) run();
    const double now = watch.seconds();
    time = (now - before) / size;
    before = now;
  }
  const double processor = processor_seconds() - processor_start;

  const double mean = before / iterations;
  std::array<double, 2> slowest{mean, -mean};
  std::array<double, 2> sums{mean, processor};
  ranks.max_over_ranks(slowest);
  ranks.sum_over_ranks(sums);
  ranks.max_over_ranks(times);
  std::sort(times.begin(), times.end());

  static constexpr double micro = 1e6;
  const std::size_t middle = times.size() / 2;
  timing result;
  result.mean = slowest[0] * micro;
  result.rank_fastest = -slowest[1] * micro;
  result.rank_average = sums[0] / ranks.size() * micro;
  result.median =
      micro * (times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2);
  result.minimum = times.front() * micro;
  result.p90 = times[(times.size() - 1) * 9 / 10] * micro;
  result.cores = sums[1] / (slowest[0] * iterations);
  result.iterations = iterations;
  return result;
}

}  // namespace bench
