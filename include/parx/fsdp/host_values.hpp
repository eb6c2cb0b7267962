// host_values: stores the values of units when all ranks are on one host: one copy of the model in
// shared memory, which all ranks read and each writes its part of. Nothing is gathered.
//
// Two barriers a step replace the gathers: about_to_write() waits until no rank reads the old
// values any more, and the first start() after it until all ranks have written the new ones.
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include <parx/comm/collectives/barrier.hpp>
#include <parx/comm/host_pages.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/comm/work.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/unit_values.hpp>

namespace parx::inline PARX_ABI::detail {

class host_values final : public unit_values {
 public:
  /// Collective over `group`, whose ranks share memory. Group and plan are borrowed.
  host_values(const unit_plan& plan, process_group& group, call_site site)
      : plan_(plan), group_(group), site_(site), pages_(group, bytes_of(plan), site) {
    std::byte* next = pages_.all().data();
    for (const flat_parameter& each : plan.flats()) {
      whole_.push_back(next);
      next += each.whole_bytes();
    }
  }

  [[nodiscard]] std::byte* whole(std::size_t flat) const override { return whole_[flat]; }
  [[nodiscard]] std::byte* part(std::size_t flat) const override {
    const auto rank = static_cast<std::size_t>(group_.rank());
    return whole_[flat] + rank * plan_.flats()[flat].part_bytes();
  }

  [[nodiscard]] bool has_room(std::size_t /*unit*/) const override { return true; }
  bool start(std::size_t /*unit*/) override {
    if (is_started_) return false;
    all_have_written_ = async_barrier(group_, {}, site_);
    is_started_ = true;
    return true;
  }
  void wait(std::size_t unit) override {
    start(unit);
    all_have_written_.wait();
  }
  void release(std::size_t /*unit*/) noexcept override {}
  void about_to_write() override {
    if (!is_started_) return;  // nobody reads
    all_have_written_.wait();
    barrier(group_, {}, site_);
    is_started_ = false;
  }

 private:
  [[nodiscard]] static std::size_t bytes_of(const unit_plan& plan) {
    return std::accumulate(
        plan.flats().begin(), plan.flats().end(), std::size_t{0},
        [](std::size_t sum, const flat_parameter& each) { return sum + each.whole_bytes(); });
  }

  const unit_plan& plan_;
  process_group& group_;
  const call_site site_;
  host_pages<std::byte> pages_;
  std::vector<std::byte*> whole_;  ///< by flat
  bool is_started_ = false;        ///< the barrier after the last write has begun
  work all_have_written_;
};

}  // namespace parx::detail
