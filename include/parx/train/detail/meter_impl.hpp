// Definitions of meter.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include <parx/core/json.hpp>
#include <parx/train/meter.hpp>
#include <parx/train/usage.hpp>

namespace parx::inline PARX_ABI::train {

PARX_INLINE void meter::pause() {
  if (!std::exchange(running_, false)) return;
  counts.seconds += std::chrono::duration<double>(clock::now() - since_).count();
  const process_usage used = usage_now();
  counts.cpu_seconds += used.cpu_seconds - cpu_;
  counts.resident_bytes = used.resident_bytes;
}

PARX_INLINE void meter::resume() {
  running_ = true;
  since_ = clock::now();
  cpu_ = usage_now().cpu_seconds;
}

PARX_INLINE rank_counts meter::take() {
  const bool was_running = running_;
  pause();
  const rank_counts taken = std::exchange(counts, {});
  if (was_running) resume();
  return taken;
}

PARX_INLINE record summarise(std::span<const rank_counts> ranks) {
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

PARX_INLINE json::value rank_table(std::span<const rank_counts> ranks) {
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

PARX_INLINE rank_counts& rank_counts::operator+=(const rank_counts& later) noexcept {
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
