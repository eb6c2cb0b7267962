// chunk_rounds: which stage and micro-batch the n-th forward or backward of a rank is about, where
// each rank has the stages r, r + p, r + 2p, ... and takes its chunks in turns.
//
// A turn is a round of g = m / max(1, m / p) micro-batches through one chunk (integer division), so
// that a round is about as long as there are ranks; with one chunk there are no turns. Forwards
// take the chunks upwards, backwards downwards. PyTorch: ScheduleInterleaved1F1B in
// torch/distributed/pipelining/schedules.py.
#pragma once

#include <algorithm>
#include <string_view>

#include <parx/pipeline/action.hpp>

namespace parx::inline PARX_ABI::detail {

class chunk_rounds {
 public:
  /// Throws usage_error where the rounds do not divide the micro-batches.
  chunk_rounds(std::string_view name, const pipeline_shape& shape)
      : ranks_(shape.ranks), chunks_(shape.chunks) {
    const int rounds = chunks_ == 1 ? 1 : std::max(1, shape.microbatches / shape.ranks);
    require(shape.microbatches % rounds == 0,
            "schedule {}: {} micro-batches are not {} equal rounds over {} ranks; a multiple of "
            "the ranks always is",
            name, shape.microbatches, rounds, shape.ranks);
    round_ = shape.microbatches / rounds;
    total_ = shape.microbatches * shape.chunks;
  }

  /// Forwards, or backwards, of a rank.
  [[nodiscard]] int total() const noexcept { return total_; }
  /// Forwards ahead of the first pair, `per_rank` more for each rank that follows.
  [[nodiscard]] int warm_up(int rank, int per_rank) const noexcept {
    return std::min(total_, (chunks_ - 1) * round_ + per_rank * (ranks_ - 1 - rank));
  }
  [[nodiscard]] stage_action forward(int rank, int step) const noexcept {
    return at(stage_work::forward, rank, step, chunk(step));
  }
  /// `kind` is backward, or one of its halves.
  [[nodiscard]] stage_action backward(stage_work kind, int rank, int step) const noexcept {
    return at(kind, rank, step, chunks_ - 1 - chunk(step));
  }

 private:
  [[nodiscard]] int chunk(int step) const noexcept { return step / round_ % chunks_; }
  [[nodiscard]] stage_action at(stage_work kind, int rank, int step, int of) const noexcept {
    const int microbatch = step / (round_ * chunks_) * round_ + step % round_;
    return {kind, rank + of * ranks_, microbatch};
  }

  int ranks_, chunks_;
  int round_ = 1;
  int total_ = 0;
};

}  // namespace parx::detail
