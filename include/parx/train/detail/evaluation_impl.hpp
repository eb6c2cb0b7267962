// Definitions of evaluation.hpp.
#pragma once

#include <array>
#include <chrono>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/reduction/metrics.hpp>
#include <parx/train/evaluation.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE void evaluation_sums::add(const metrics& found, double samples) {
  nn::add(figures_, found);
  samples_.sum += samples;
  batches_.sum += 1;
}

PARX_INLINE metrics evaluation_sums::all() && {
  figures_.emplace_back("samples", samples_);
  figures_.emplace_back("steps", batches_);
  return std::move(figures_);
}

PARX_INLINE std::size_t most_batches(process_group& job, std::size_t own, call_site site) {
  std::array<std::size_t, 1> most{own};
  parx::all_reduce(job, most, {.op = reduce_op::max}, site);
  return most[0];
}

}  // namespace parx::train::detail

namespace parx::inline PARX_ABI::train {

PARX_INLINE bool evaluate_into(record& line, process_group& data, process_group& job,
                               const std::string& prefix, const evaluate_function& run,
                               const stop_early& stops, call_site site) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<metrics> found = run(stops);
  if (!found) return false;
  sum_over(data, job, *found, site);
  const double steps = found->back().value.sum / data.size();
  found->pop_back();
  const double samples = found->back().value.sum;
  found->pop_back();
  for (const metric& each : *found) line.set(prefix + "_" + each.name, each.value.mean());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  line.set(prefix + "_runtime", seconds);
  line.set(prefix + "_samples_per_second", samples / seconds);
  line.set(prefix + "_steps_per_second", steps / seconds);
  return true;
}

}  // namespace parx::train
