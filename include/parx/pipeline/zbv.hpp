// ZBV: zero bubble with the stages placed as a V: rank r has the stages r and 2p-1-r, so the last
// stage is on the first rank and its backward starts at once.
//
// If F, I and W take equally long, no rank is idle between its first and its last action; rank r
// starts r units late, which is (p-1) / (6m+p-1) of the time. Every rank has 2p half-sized chunks
// in flight, as much as 1F1B's first rank. The table for fewer than 2p-1 micro-batches is that for
// 2p-1 without the extra micro-batches. Qi, Wan, Amar, Lin: Pipeline Parallelism with Controllable
// Memory (arXiv 2405.15362), and ScheduleZBVZeroBubble in PyTorch's
// torch/distributed/pipelining/schedules.py.
#pragma once

#include <algorithm>

#include <parx/pipeline/action.hpp>

namespace parx::inline PARX_ABI::schedules {

namespace detail {

/// The actions of one rank: its first stage is on the way down the V, its second on the way up.
class v_shape {
 public:
  v_shape(std::vector<stage_action>& to, int first, int second, int microbatches)
      : to_(to), stages_{first, second}, microbatches_(microbatches) {}

  enum side { down, up };
  void forward(side s) { add(stage_work::forward, s, forwards[s]); }
  void inputs(side s) { add(stage_work::backward_inputs, s, inputs_[s]); }
  void weights(side s) { add(stage_work::backward_weights, s, weights_[s]); }
  void backward(side s) {
    inputs(s);
    weights(s);
  }
  void rest_of_weights(side s) {
    while (weights_[s] < inputs_[s]) weights(s);
  }

  int forwards[2] = {0, 0};

 private:
  void add(stage_work kind, side s, int& next) {
    if (next < microbatches_) to_.push_back({kind, stages_[s], next});
    ++next;
  }

  std::vector<stage_action>& to_;
  int stages_[2];
  int microbatches_;
  int inputs_[2] = {0, 0}, weights_[2] = {0, 0};
};

}  // namespace detail

[[nodiscard]] inline pipeline_table zbv(const pipeline_shape& shape) {
  using enum detail::v_shape::side;
  pipeline_table table = parx::detail::empty_table("zbv", shape, 2);
  const int p = shape.ranks, count = std::max(shape.microbatches, 2 * p - 1);
  for (int rank = 0; rank < p; ++rank) {
    detail::v_shape v(table.ranks[static_cast<std::size_t>(rank)], rank, 2 * p - 1 - rank,
                      shape.microbatches);
    const auto repeat = [](int times, auto body) {
      while (times-- > 0) body();
    };
    repeat(2 * (p - rank) - 1, [&] { v.forward(down); });
    repeat(rank, [&] { v.forward(up), v.forward(down); });
    repeat(p - rank, [&] { v.forward(up), v.backward(up); });
    while (v.forwards[up] < v.forwards[down] || v.forwards[down] < count) {
      if (v.forwards[down] < count) v.forward(down);
      v.backward(down);
      v.forward(up);
      v.backward(up);
    }
    repeat(rank, [&] { v.inputs(down), v.inputs(up); });
    repeat(p - rank, [&] { v.inputs(down), v.weights(down); });
    v.rest_of_weights(up);
    v.rest_of_weights(down);
  }
  return table;
}

}  // namespace parx::schedules
