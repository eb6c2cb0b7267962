// Definitions of host_values.hpp.
#pragma once

#include <numeric>

#include <parx/comm/collectives/barrier.hpp>
#include <parx/fsdp/host_values.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE host_values::host_values(const unit_plan& plan, process_group& group, call_site site)
    : plan_(plan), group_(group), site_(site), pages_(group, bytes_of(plan), site) {
  std::byte* next = pages_.all().data();
  for (const unit_flat& each : plan.flats()) {
    whole_.push_back(next);
    next += each.whole_bytes();
  }
}

PARX_INLINE void host_values::start(std::size_t /*unit*/) {
  if (is_started_) return;
  all_have_written_ = async_barrier(group_, {}, site_);
  is_started_ = true;
}

PARX_INLINE void host_values::written() {
  if (!is_started_) return;  // nobody reads
  all_have_written_.wait();
  barrier(group_, {}, site_);
  is_started_ = false;
}

PARX_INLINE std::size_t host_values::bytes_of(const unit_plan& plan) {
  return std::accumulate(
      plan.flats().begin(), plan.flats().end(), std::size_t{0},
      [](std::size_t sum, const unit_flat& each) { return sum + each.whole_bytes(); });
}

}  // namespace parx::detail
