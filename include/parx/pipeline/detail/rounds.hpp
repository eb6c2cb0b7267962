// chunk_rounds: the stage and micro-batch of a rank's n-th forward or backward, if rank r has the
// stages r, r + p, r + 2p, ... (its chunks) and cycles through them.
//
// It runs a round of g = m / max(1, m / p) micro-batches (integer division) through one chunk, then
// through the next; a round has about as many micro-batches as there are ranks. Forwards take the
// chunks in ascending, backwards in descending order. PyTorch: ScheduleInterleaved1F1B in
// torch/distributed/pipelining/schedules.py.
#pragma once

#include <algorithm>
#include <string_view>

#include <parx/pipeline/action.hpp>

namespace parx::inline PARX_ABI::detail {

class chunk_rounds {
 public:
  /// Throws usage_error unless the micro-batches can be divided into equal rounds.
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

  /// The number of a rank's forwards; it has as many backwards.
  [[nodiscard]] int total() const noexcept { return total_; }
  /// The number of forwards in the warm-up: `per_rank` more for each rank that follows.
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
