// Definitions of part_sum.hpp.
#pragma once

#include <cstring>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/all_to_all.hpp>
#include <parx/comm/collectives/reduce_scatter.hpp>
#include <parx/fsdp/part_sum.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE void part_sum::start(const unit_flat& flat, std::byte* memory, std::byte* part,
                                 summed_pass pass) {
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

PARX_INLINE bool part_sum::is_ready() {
  for (work& each : works_) {
    if (!is_passed_on_ && !each.test()) return false;
  }
  return true;
}

PARX_INLINE void part_sum::pass_on() {
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

PARX_INLINE void part_sum::finish() {
  if (flat_ == nullptr) return;
  pass_on();
  wait();
  if (pass_.is_last && !is_mean_) {
    if (is_narrow() && how_->has_replicas()) widen(memory_, part_, flat_->part);
    if (pass_.divides) scale_kernel(flat_->type)(part_, flat_->part, control_->factor());
  }
  flat_ = nullptr;
}

PARX_INLINE void part_sum::wait() {
  for (work& each : works_) each.wait();
  works_.clear();
}

PARX_INLINE void part_sum::take(const std::byte* sum) const {
  if (pass_.adds) {
    reduce_kernel(flat_->type, reduce_op::sum)(part_, part_, sum, flat_->part);
  } else {
    std::memmove(part_, sum, flat_->part_bytes());
  }
}

PARX_INLINE std::vector<std::size_t> part_sum::pieces() const {
  std::vector<std::size_t> counts(static_cast<std::size_t>(how_->replicas.size()));
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = piece_begin(i + 1) - piece_begin(i);
  return counts;
}

PARX_INLINE void part_sum::start_pieces() {
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
