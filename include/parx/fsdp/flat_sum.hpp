// flat_sum: the interface of what sums the gradients of a flat parameter, which every rank has
// whole, so that each rank gets its part of the sum, or of the mean in the last pass of a step.
//
//   start() -> pass_on() -> finish()
//
// With parts over S ranks and R replicas of each, for a flat of P bytes a rank sends
//   scattered_sum    P (S - 1) / S, in a reduce_scatter among the S ranks; then, with replicas, an
//                    all_reduce of the part over them, 2 P/S (R - 1) / R
//   rank_order_sum   hybrid in serial order, the only way to the bits of a ddp: P (N - 1) / N, a
//                    reduce_scatter over all N = S R ranks, which gives a rank a piece of its part;
//                    then an all_gather of the pieces over the replicas, P (R - 1) / N
//   narrow_sum       gradients as bfloat16 (wire.hpp), half the bytes of scattered_sum: an
//                    all_to_all replaces the reduce_scatter
//   replica_flat_sum virtual replicas: P (N - 1) / N for each sum that the rank sends, one where
//                    its replicas are a node of the tree; the same again is received
// Sums of several passes are added up in the part; replicas are summed once a step, in the last
// one. Threads: the one that runs backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/comm/schedule/reduction_order.hpp>
#include <parx/comm/work.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/wire.hpp>
#include <parx/reduction/gradient_sums.hpp>
#include <parx/reduction/replica_tree.hpp>
#include <parx/types/buffer.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI::detail {

/// The groups and settings of the sums. Equal on all ranks but for `part`.
struct sum_settings {
  process_group& all;
  process_group& shards;    ///< `all` unless there are replicas
  process_group& replicas;
  std::vector<std::size_t> part_of;  ///< by rank of `all`: the number of its part
  std::size_t part = 0;              ///< this rank's part
  reduction_order order = reduction_order::serial;
  wire_types wire{};
  bool in_parts = false;  ///< sums of several passes are added up in the parts
  std::optional<replica_plan> virtual_replicas{};

  [[nodiscard]] bool has_replicas() const noexcept { return replicas.size() > 1; }
  [[nodiscard]] bool in_rank_order() const noexcept {
    return has_replicas() && order == reduction_order::serial && !wire.reduce && !in_parts;
  }
  /// The group of the first exchange, directly from the gradients' memory.
  [[nodiscard]] process_group& first() const noexcept { return in_rank_order() ? all : shards; }
};

class flat_sum {
 public:
  /// The result is written to `part`, which may be this rank's part of the memory. All but `site`
  /// is borrowed.
  flat_sum(const sum_settings& how, const flat_parameter& flat, std::byte* part,
           const step_header& header, call_site site)
      : how_(how), flat_(flat), part_(part), header_(header), site_(site) {}
  flat_sum(const flat_sum&) = delete;
  flat_sum& operator=(const flat_sum&) = delete;
  virtual ~flat_sum() = default;

  /// Collective, asynchronous. `memory` has the flat and is in use until finish().
  void start(std::byte* memory, const reduction_pass& pass) {
    if (flat_.part == 0) return;
    memory_ = memory;
    pass_ = pass;
    phase_ = phase::over_shards;
    scatter();
  }
  /// Whether pass_on() would not block.
  [[nodiscard]] bool is_ready() {
    return phase_ != phase::over_shards ||
           std::all_of(works_.begin(), works_.end(), [](work& each) { return each.test(); });
  }
  /// Collective over the replicas: blocks for the sum over the shards, and starts the exchange with
  /// the replicas. The step header must have arrived.
  void pass_on() {
    if (phase_ != phase::over_shards) return;
    wait();
    phase_ = phase::over_replicas;
    exchange();
  }
  /// Blocks until the part has the result.
  void finish() {
    pass_on();
    if (phase_ == phase::over_replicas) {
      wait();
      complete();
    }
    phase_ = phase::none;
  }
  /// Gives up the sum: blocks until no operation uses the memory any more.
  virtual void drop() noexcept {
    works_.clear();
    phase_ = phase::none;
  }

 protected:
  /// Starts the sum over the shards.
  virtual void scatter() = 0;
  /// That sum has arrived. In the last pass, starts the one over the replicas.
  virtual void exchange() = 0;
  /// Both have.
  virtual void complete() {}

  /// Adds the sum of this pass to the part, or copies it there if it is the first.
  void take(const std::byte* sum) const {
    if (pass_.adds) {
      reduce_kernel(flat_.type, reduce_op::sum)(part_, part_, sum, flat_.part);
    } else {
      std::memmove(part_, sum, flat_.part_bytes());
    }
  }
  void scale_part() const { scale_kernel(flat_.type)(part_, flat_.part, header_.factor()); }
  [[nodiscard]] buffer_view part() const noexcept { return {part_, flat_.part, flat_.type}; }

  const sum_settings& how_;
  const flat_parameter& flat_;
  std::byte* const part_;
  const step_header& header_;
  const call_site site_;
  std::byte* memory_ = nullptr;
  reduction_pass pass_{};
  std::vector<work> works_;

 private:
  enum class phase { none, over_shards, over_replicas };

  void wait() {
    for (work& each : works_) each.wait();
    works_.clear();
  }

  phase phase_ = phase::none;
};

}  // namespace parx::detail
