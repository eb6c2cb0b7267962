// measure: the times of a step of stages, to choose the cut and the schedule of the next ones.
//
//   parx::parallel trial{net, world, {.pp = 2}};
//   trial.forward_backward(batch, criterion);             // the second step: the first allocates
//   trial.forward_backward(batch, criterion);
//   const auto seen = parx::measure(trial.stages());
//   parx::parallel model{net, world, {.pp = 2, .schedule = "eager_1f1b"},
//                        {.pipeline = {.weights = seen.block_seconds, .hop = seen.hop}}};
//
// The parameter count is a poor guess of a block's time: a large embedding is only a look-up, and
// the logits of a large vocabulary take longer than a layer. The depth of eager 1F1B follows from
// hop.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/message.hpp>
#include <parx/core/source.hpp>
#include <parx/pipeline/pipeline_engine.hpp>

namespace parx::inline PARX_ABI {

/// Times of this machine, by which stages are cut and schedules chosen.
struct pipeline_measurement {
  std::vector<double> block_seconds;  ///< by block: the forward of one micro-batch
  double stage_seconds = 0;  ///< forward and backward of one micro-batch on the slowest rank
  double hop_seconds = 0;    ///< a message from stage to stage on the slowest link
  double hop = 0;            ///< hop_seconds / stage_seconds: pipeline_choices::hop
};

namespace detail {

/// Collective over the two ranks. The seconds that a message of `bytes` takes, best of six rounds;
/// 0 on the higher rank.
[[nodiscard]] inline double time_one_way(process_group& group, int lower, int higher,
                                         std::size_t bytes, call_site site) {
  std::vector<std::uint8_t> payload(std::max<std::size_t>(bytes, 1));
  const int peer = group.rank() == lower ? higher : lower;
  double best = 1e300;
  for (int round = 0; round < 6; ++round) {
    const auto from = std::chrono::steady_clock::now();
    if (group.rank() == lower) send(group, payload, peer, {}, site);
    recv(group, payload, peer, {}, site);
    if (group.rank() != lower) send(group, payload, peer, {}, site);
    const std::chrono::duration<double> both = std::chrono::steady_clock::now() - from;
    // The higher rank's time includes its wait for the lower one to begin, so it does not count.
    if (group.rank() == lower) best = std::min(best, both.count() / 2);
  }
  return group.rank() == lower ? best : 0;
}

}  // namespace detail

/// Collective over the pipeline, after a step; returns the same on all its ranks. Sends messages
/// between neighbouring stages, as long as those of the step.
template <typename T>
[[nodiscard]] pipeline_measurement measure(pipeline_engine<T>& pipe,
                                           call_site site = call_site::current()) {
  process_group& group = pipe.group();
  pipeline_measurement seen{.block_seconds = pipe.runner().block_seconds()};
  require(!seen.block_seconds.empty(), "measure at {}: the pipeline has not run a step yet", site);
  double computed = 0, forwards = 0;
  int first_stage = -1;
  for (const action_span& each : pipe.runner().spans()) {
    computed += each.end - each.begin;
    if (first_stage < 0) first_stage = each.action.stage;
    const bool counts = each.action.kind == stage_work::forward && each.action.stage == first_stage;
    forwards += counts ? 1 : 0;
  }
  all_reduce(group, seen.block_seconds, {}, site);
  std::array<double, 3> most{forwards > 0 ? computed / forwards : 0, forwards,
                             static_cast<double>(pipe.runner().message_bytes())};
  all_reduce(group, most, {.op = reduce_op::max}, site);
  for (double& each : seen.block_seconds) each /= most[1];
  const std::vector<int> owner = pipe.table().owners();
  std::array<double, 1> hop{0};
  for (std::size_t s = 0; s + 1 < owner.size(); ++s) {
    const auto [lower, higher] = std::minmax(owner[s], owner[s + 1]);
    if (lower == higher || (group.rank() != lower && group.rank() != higher)) continue;
    const auto bytes = static_cast<std::size_t>(most[2]);
    hop[0] = std::max(hop[0], detail::time_one_way(group, lower, higher, bytes, site));
  }
  all_reduce(group, hop, {.op = reduce_op::max}, site);
  seen.stage_seconds = most[0];
  seen.hop_seconds = hop[0];
  seen.hop = most[0] > 0 ? hop[0] / most[0] : 0;
  return seen;
}

}  // namespace parx
