// part_sum: how the gradients of a flat, which every rank has whole, become each rank's part of
// their sum, and of their mean in the last pass of a step.
//
//   start() -> pass_on() -> finish()
//
// With parts over S ranks and R replicas of each, a flat of P bytes sends from a rank
//   without replicas: P (S - 1) / S, a reduce_scatter;
//   hybrid: that among the S ranks, then an all_reduce of the part over its replicas,
//     2 P/S (R - 1) / R;
//   hybrid in serial order: a reduce_scatter over all N = S R ranks, which alone has the bits of a
//     ddp, by which a rank gets a piece of its part, P (N - 1) / N; then replicas gather the pieces
//     from each other, P (R - 1) / N.
// Gradients as bfloat16 (wire.hpp): an all_to_all takes the place of the reduce_scatter.
// Sums of several passes are added up in the part, before replicas add theirs: once a step.
// Threads: on the thread that runs backward.
#pragma once

#include <cstddef>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/all_to_all.hpp>
#include <parx/comm/collectives/reduce_scatter.hpp>
#include <parx/ddp/control_block.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/wire.hpp>
#include <parx/types/buffer.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI::detail {

/// Among whom, and how. Equal on all ranks but for `part`.
struct summing {
  process_group& all;
  process_group& shards;    ///< `all` unless there are replicas
  process_group& replicas;
  std::vector<std::size_t> part_of;  ///< by rank of `all`: the number of its part
  std::size_t part = 0;              ///< of this rank
  reduction_order order = reduction_order::serial;
  wire_types wire{};
  bool in_parts = false;  ///< sums of several passes are added up in the parts

  [[nodiscard]] bool has_replicas() const noexcept { return replicas.size() > 1; }
  [[nodiscard]] bool in_pieces() const noexcept {
    return has_replicas() && order == reduction_order::serial && !wire.reduce && !in_parts;
  }
  /// The group whose ranks exchange gradients as they are in the slots.
  [[nodiscard]] process_group& first() const noexcept { return in_pieces() ? all : shards; }
};

/// What a backward pass does with its sums.
struct summed_pass {
  bool is_last = true;       ///< of its step: parts become means
  bool adds = false;         ///< to what is in the parts
  bool divides = true;       ///< by the count, in the last pass
};

class part_sum {
 public:
  /// Both are borrowed.
  part_sum(const summing& how, const control_block& control, call_site site)
      : how_(&how), control_(&control), site_(site) {}

  /// Collective, asynchronous. `memory` has the flat and is used until finish(); the result comes
  /// to `part`, which is there, or lies in `memory` where this rank's part does.
  void start(const unit_flat& flat, std::byte* memory, std::byte* part, summed_pass pass);
  /// Whether pass_on() would not block.
  [[nodiscard]] bool is_ready();
  /// Collective over the replicas: blocks for the sum among shards, and starts what follows. The
  /// counts of all ranks are known.
  void pass_on();
  /// Blocks until the part has the result.
  void finish();
  /// Blocks until nothing writes the memory any more.
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
  void wait();
  /// The sum of this pass.
  void take(const std::byte* sum) const;

  // Pieces of a part are those of its replicas, in the order of their ranks.
  [[nodiscard]] std::size_t own_replica() const noexcept {
    return static_cast<std::size_t>(how_->replicas.rank());
  }
  [[nodiscard]] std::size_t piece_begin(std::size_t replica) const noexcept {
    return flat_->part * replica / static_cast<std::size_t>(how_->replicas.size());
  }
  [[nodiscard]] std::vector<std::size_t> pieces() const;
  /// A reduce_scatter for each part: a rank's piece of it need not lie where its rank says.
  void start_pieces();

  const summing* how_;
  const control_block* control_;
  call_site site_;
  const unit_flat* flat_ = nullptr;  ///< while a sum is under way
  std::byte* memory_ = nullptr;
  std::byte* part_ = nullptr;
  summed_pass pass_{};
  bool is_passed_on_ = false;
  bool is_mean_ = false;  ///< what the works leave in the part
  std::vector<work> works_;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/fsdp/detail/part_sum_impl.hpp>
#endif
