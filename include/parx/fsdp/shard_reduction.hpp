// shard_reduction: sums the gradients of a flat, which every rank has whole, so that each rank gets
// its part of the sum, or of the mean in the last pass of a step.
//
//   start() -> pass_on() -> finish()
//
// With parts over S ranks and R replicas of each, for a flat of P bytes a rank sends
//   without replicas: P (S - 1) / S, in a reduce_scatter;
//   hybrid: the same among the S ranks, then an all_reduce of the part over its replicas,
//     2 P/S (R - 1) / R;
//   hybrid in serial order: a reduce_scatter over all N = S R ranks, the only way to the bits of a
//     ddp, which gives a rank a piece of its part, P (N - 1) / N; then an all_gather of the pieces
//     over the replicas, P (R - 1) / N.
// For gradients as bfloat16 (wire.hpp), an all_to_all replaces the reduce_scatter.
// Sums of several passes are added up in the part; replicas are summed once a step, in the last
// one. Threads: the one that runs backward.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/all_to_all.hpp>
#include <parx/comm/collectives/reduce_scatter.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/comm/schedule/reduction_order.hpp>
#include <parx/comm/work.hpp>
#include <parx/ddp/step_header.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/wire.hpp>
#include <parx/types/buffer.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI::detail {

/// The groups and settings of the sums. Equal on all ranks but for `part`.
struct reduction_layout {
  process_group& all;
  process_group& shards;    ///< `all` unless there are replicas
  process_group& replicas;
  std::vector<std::size_t> part_of;  ///< by rank of `all`: the number of its part
  std::size_t part = 0;              ///< this rank's part
  reduction_order order = reduction_order::serial;
  wire_types wire{};
  bool in_parts = false;  ///< sums of several passes are added up in the parts

  [[nodiscard]] bool has_replicas() const noexcept { return replicas.size() > 1; }
  [[nodiscard]] bool in_pieces() const noexcept {
    return has_replicas() && order == reduction_order::serial && !wire.reduce && !in_parts;
  }
  /// The group of the first exchange, directly from the gradients' memory.
  [[nodiscard]] process_group& first() const noexcept { return in_pieces() ? all : shards; }
};

/// What a backward pass does with its sums.
struct reduction_pass {
  bool is_last = true;  ///< the last of its step: parts become means
  bool adds = false;    ///< adds to the sums in the parts
  bool divides = true;  ///< divides by the count, in the last pass
};

class shard_reduction {
 public:
  /// `how` and `control` are borrowed.
  shard_reduction(const reduction_layout& how, const step_header& control, call_site site)
      : how_(&how), control_(&control), site_(site) {}

  /// Collective, asynchronous. `memory` has the flat and is in use until finish(). The result is
  /// written to `part`, which may be this rank's part of `memory`.
  void start(const flat_parameter& flat, std::byte* memory, std::byte* part, reduction_pass pass);
  /// Whether pass_on() would not block.
  [[nodiscard]] bool is_ready() {
    for (work& each : works_) {
      if (!is_passed_on_ && !each.test()) return false;
    }
    return true;
  }
  /// Collective over the replicas: blocks for the sum over the shards, and starts the exchange with
  /// the replicas. The step header must have arrived.
  void pass_on();
  /// Blocks until the part has the result.
  void finish() {
    if (flat_ == nullptr) return;
    pass_on();
    wait();
    if (pass_.is_last && !is_mean_) {
      if (is_narrow() && how_->has_replicas()) widen(memory_, part_, flat_->part);
      if (pass_.divides) scale_kernel(flat_->type)(part_, flat_->part, control_->factor());
    }
    flat_ = nullptr;
  }
  /// Gives up the sum: blocks until no operation uses the memory any more.
  void drop() noexcept {
    works_.clear();
    flat_ = nullptr;
  }

 private:
  [[nodiscard]] bool is_narrow() const noexcept {
    return is_narrowed(how_->wire.reduce, flat_->type);
  }
  [[nodiscard]] const double* divisor(bool divides) const noexcept {
    return divides ? &control_->count() : nullptr;
  }
  [[nodiscard]] buffer_view own_block() const noexcept {
    return {memory_ + how_->part * flat_->part_bytes(), flat_->part, flat_->type};
  }
  void wait() {
    for (work& each : works_) each.wait();
    works_.clear();
  }
  /// Adds the sum of this pass to the part, or copies it there if it is the first.
  void take(const std::byte* sum) const {
    if (pass_.adds) {
      reduce_kernel(flat_->type, reduce_op::sum)(part_, part_, sum, flat_->part);
    } else {
      std::memmove(part_, sum, flat_->part_bytes());
    }
  }

  // A part is divided into pieces, one for each replica in rank order.
  [[nodiscard]] std::size_t own_replica() const noexcept {
    return static_cast<std::size_t>(how_->replicas.rank());
  }
  [[nodiscard]] std::size_t piece_begin(std::size_t replica) const noexcept {
    return flat_->part * replica / static_cast<std::size_t>(how_->replicas.size());
  }
  [[nodiscard]] std::vector<std::size_t> pieces() const {
    std::vector<std::size_t> counts(static_cast<std::size_t>(how_->replicas.size()));
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = piece_begin(i + 1) - piece_begin(i);
    return counts;
  }
  /// Starts a reduce_scatter for each part. A single one would not do: it needs the ranks' blocks
  /// in rank order, and the ranks of a part need not be neighbours.
  void start_pieces();

  const reduction_layout* how_;
  const step_header* control_;
  call_site site_;
  const flat_parameter* flat_ = nullptr;  ///< null unless a sum is under way
  std::byte* memory_ = nullptr;
  std::byte* part_ = nullptr;
  reduction_pass pass_{};
  bool is_passed_on_ = false;
  bool is_mean_ = false;  ///< works_ leave the mean in the part, not the sum
  std::vector<work> works_;
};

inline void shard_reduction::start(const flat_parameter& flat, std::byte* memory, std::byte* part,
                                   reduction_pass pass) {
  if (flat.part == 0) return;
  flat_ = &flat;
  memory_ = memory;
  part_ = part;
  pass_ = pass;
  is_passed_on_ = is_mean_ = false;
  const buffer_view whole{memory, flat.whole(), flat.type};
  const buffer_view result{part, flat.part, flat.type};
  process_group& shards = how_->shards;
  if (is_narrow()) {
    narrow(memory, memory, flat.whole());
    const buffer_view sent{memory, flat.whole(), dtype::bfloat16};
    const buffer_view received{memory + flat.whole_bytes() / 2, flat.whole(), dtype::bfloat16};
    works_.push_back(async_all_to_all(shards, sent, received, {}, site_));
  } else if (how_->in_pieces()) {
    start_pieces();
  } else if (pass.adds) {
    works_.push_back(
        async_reduce_scatter(shards, whole, own_block(), {.order = how_->order}, site_));
  } else {
    // The count was sent earlier on this group, so it has arrived when this sum starts to run.
    is_mean_ = pass.is_last && pass.divides && !how_->has_replicas();
    works_.push_back(async_reduce_scatter(
        shards, whole, result, {.divide_by = divisor(is_mean_), .order = how_->order}, site_));
  }
}

inline void shard_reduction::pass_on() {
  if (flat_ == nullptr || is_passed_on_) return;
  wait();
  is_passed_on_ = true;
  const buffer_view part{part_, flat_->part, flat_->type};
  if (is_narrow()) {
    add_up_narrow(memory_ + flat_->whole_bytes() / 2, flat_->ranks, memory_, flat_->part);
    take(memory_);
  } else if (how_->in_pieces()) {
    const_buffer_view piece{part_ + piece_begin(own_replica()) * size_of(flat_->type),
                            piece_begin(own_replica() + 1) - piece_begin(own_replica()),
                            flat_->type};
    works_.push_back(async_all_gather_v(how_->replicas, piece, part, pieces(), {}, site_));
    is_mean_ = true;
  } else if (pass_.adds) {
    take(static_cast<std::byte*>(own_block().data));
  }
  if (!pass_.is_last || is_mean_ || !how_->has_replicas()) return;
  if (is_narrow()) {
    narrow(part_, memory_, flat_->part);
    const buffer_view sum{memory_, flat_->part, dtype::bfloat16};
    works_.push_back(async_all_reduce(how_->replicas, sum, {.order = how_->order}, site_));
    return;
  }
  works_.push_back(async_all_reduce(how_->replicas, part,
                                    {.divide_by = divisor(true), .order = how_->order}, site_));
  is_mean_ = true;
}

inline void shard_reduction::start_pieces() {
  std::vector<std::size_t> counts(how_->part_of.size());
  for (std::size_t part = 0; part < flat_->ranks; ++part) {
    std::size_t replica = 0, own = 0;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      const bool has_it = how_->part_of[rank] == part;
      counts[rank] = has_it ? piece_begin(replica + 1) - piece_begin(replica) : 0;
      if (has_it) ++replica;
    }
    own = counts[static_cast<std::size_t>(how_->all.rank())];
    const buffer_view from{memory_ + part * flat_->part_bytes(), flat_->part, flat_->type};
    const buffer_view to{part_ + piece_begin(own_replica()) * size_of(flat_->type), own,
                         flat_->type};
    works_.push_back(async_reduce_scatter_v(
        how_->all, from, to, counts, {.divide_by = divisor(true), .order = how_->order}, site_));
  }
}

}  // namespace parx::detail
