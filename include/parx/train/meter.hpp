// meter: the counts of a rank between two log lines, and the figures computed from all ranks'
// counts.
//
// At each log line one all_gather exchanges the counts, and every rank adds them in rank order, so
// the figures are exact sums over ranks and steps and have the same bits on all ranks. Steps
// between two lines do not communicate for them.
#pragma once

#include <algorithm>
#include <chrono>
#include <span>
#include <type_traits>
#include <utility>

#include <parx/core/json.hpp>
#include <parx/nn/loss.hpp>
#include <parx/train/record.hpp>
#include <parx/train/usage.hpp>

namespace parx::inline PARX_ABI::train {

/// One rank's counts since the last line. Times are wall-clock seconds.
struct rank_counts {
  double loss_sum = 0;
  double loss_count = 0;
  double samples = 0;
  double tokens = 0;
  double steps = 0;
  double seconds = 0;        ///< since the last line, without evaluations and saves
  double data = 0;           ///< of these, waiting for the loader's batches
  double wait = 0;           ///< of these, waiting for other ranks' gradients
  double communication = 0;  ///< in which gradients were in flight, hidden or not
  double cpu_seconds = 0;    ///< of all threads of the process
  double resident_bytes = 0;
  double wants_stop = 0;  ///< 1 if this rank asked to end training
  double signal = 0;      ///< the signal that asked this rank's process to end; 0: none
  double repeats = 0;     ///< 1 if a lower rank of the job works on the same samples

  [[nodiscard]] double compute() const noexcept { return std::max(0.0, seconds - data - wait); }
  /// Adds the counts of a later interval.
  rank_counts& operator+=(const rank_counts& later) noexcept;
};
static_assert(std::is_trivially_copyable_v<rank_counts>);

/// The result of a loss function, a weighted_loss or an nn::tally, as numbers.
template <typename Loss>
[[nodiscard]] nn::tally figure_of(const Loss& loss) {
  if constexpr (requires { loss.sum.item(); }) {
    return {.sum = static_cast<double>(loss.sum.item()), .count = static_cast<double>(loss.count)};
  } else {
    return {.sum = static_cast<double>(loss.sum), .count = static_cast<double>(loss.count)};
  }
}

/// A rank's stopwatch: measures the counts that come from clocks.
class meter {
  using clock = std::chrono::steady_clock;

 public:
  /// The training loop adds loss, samples, tokens, steps and communication.
  rank_counts counts;

  meter() { resume(); }

  /// Calls `wait`, counts its time as waiting for data, and returns its result.
  template <typename Wait>
  decltype(auto) waiting_for_data(Wait&& wait) {
    const struct stopwatch {
      ~stopwatch() { total += std::chrono::duration<double>(clock::now() - from).count(); }
      double& total;
      clock::time_point from = clock::now();
    } running{counts.data};
    return std::forward<Wait>(wait)();
  }

  /// Time from here until resume() does not count: evaluations and saves.
  void pause() {
    if (!std::exchange(running_, false)) return;
    counts.seconds += std::chrono::duration<double>(clock::now() - since_).count();
    const process_usage used = usage_now();
    counts.cpu_seconds += used.cpu_seconds - cpu_;
    counts.resident_bytes = used.resident_bytes;
  }
  void resume() {
    running_ = true;
    since_ = clock::now();
    cpu_ = usage_now().cpu_seconds;
  }

  /// Returns the counts so far and resets them.
  [[nodiscard]] rank_counts take() {
    const bool was_running = running_;
    pause();
    const rank_counts taken = std::exchange(counts, {});
    if (was_running) resume();
    return taken;
  }

 private:
  bool running_ = false;
  clock::time_point since_{};
  double cpu_ = 0;
};

/// The figures of a log line, from all ranks' counts: loss, throughput, and how time was spent.
[[nodiscard]] inline record summarise(std::span<const rank_counts> ranks) {
  nn::tally loss;
  double samples = 0, tokens = 0, seconds = 0, wait = 0, communication = 0, steps = 0, data = 0;
  for (const rank_counts& each : ranks) {
    if (each.repeats == 0) {
      loss += {.sum = each.loss_sum, .count = each.loss_count};
      samples += each.samples;
      tokens += each.tokens;
    }
    seconds = std::max(seconds, each.seconds);
    steps = std::max(steps, each.steps);
    wait += each.wait;
    data += each.data;
    communication += each.communication;
  }
  record line;
  line.set("loss", loss.mean());
  if (seconds > 0) {
    line.set("samples_per_second", samples / seconds);
    if (tokens > 0) line.set("tokens_per_second", tokens / seconds);
    line.set("step_ms", steps > 0 ? 1e3 * seconds / steps : 0);
    const double rank_seconds = seconds * static_cast<double>(ranks.size());
    line.set("data_wait_percent", 100 * data / rank_seconds);
    line.set("communication_wait_percent", 100 * wait / rank_seconds);
  }
  if (communication > 0 && ranks.size() > 1) {
    line.set("communication_hidden_percent", 100 * std::clamp(1 - wait / communication, 0.0, 1.0));
  }
  return line;
}

/// The figures of each rank, for ranks.jsonl and the report: one array per quantity, by rank.
[[nodiscard]] inline json::value rank_table(std::span<const rank_counts> ranks) {
  json::object table;
  const auto column = [&](const char* name, auto value_of) {
    json::array values;
    for (const rank_counts& each : ranks) values.push_back(json_number(rounded(value_of(each), 5)));
    table[name] = std::move(values);
  };
  const auto share = [](double part, const rank_counts& of) {
    return of.seconds > 0 ? 100 * part / of.seconds : 0;
  };
  column("cpu_percent", [&](const rank_counts& c) { return share(c.cpu_seconds, c); });
  column("resident_mib", [](const rank_counts& c) { return c.resident_bytes / (1 << 20); });
  column("compute_percent", [&](const rank_counts& c) { return share(c.compute(), c); });
  column("communication_wait_percent", [&](const rank_counts& c) { return share(c.wait, c); });
  column("data_wait_percent", [&](const rank_counts& c) { return share(c.data, c); });
  column("communication_percent", [&](const rank_counts& c) { return share(c.communication, c); });
  column("samples_per_second",
         [](const rank_counts& c) { return c.seconds > 0 ? c.samples / c.seconds : 0; });
  return table;
}

inline rank_counts& rank_counts::operator+=(const rank_counts& later) noexcept {
  loss_sum += later.loss_sum;
  loss_count += later.loss_count;
  samples += later.samples;
  tokens += later.tokens;
  steps += later.steps;
  seconds += later.seconds;
  data += later.data;
  wait += later.wait;
  communication += later.communication;
  cpu_seconds += later.cpu_seconds;
  resident_bytes = later.resident_bytes;
  wants_stop = std::max(wants_stop, later.wants_stop);
  signal = std::max(signal, later.signal);
  repeats = later.repeats;
  return *this;
}

}  // namespace parx::train
