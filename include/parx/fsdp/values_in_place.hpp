// values_in_place: the storage for a model whose values stay in the caller's memory (raw_module),
// whole on each rank. Each parameter is a unit, and this rank's part of it lies inside the caller's
// array.
//
// Nothing tells when the caller reads its arrays, so they are completed as soon as a part has been
// written: one all_gather_v for each array, in place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/unit_values.hpp>
#include <parx/types/buffer.hpp>

namespace parx::inline PARX_ABI::detail {

class values_in_place final : public unit_values {
 public:
  /// `arrays` are the caller's, by flat, each of which has one parameter. Plan and group are
  /// borrowed.
  values_in_place(const unit_plan& plan, process_group& group, std::vector<std::byte*> arrays,
                  call_site site)
      : plan_(plan), group_(group), arrays_(std::move(arrays)), site_(site) {}

  [[nodiscard]] std::byte* whole(std::size_t flat) const override { return arrays_[flat]; }
  [[nodiscard]] std::byte* part(std::size_t flat) const override {
    const flat_parameter& each = plan_.flats()[flat];
    return arrays_[flat] + begin_of(each, group_.rank()) * size_of(each.type);
  }
  [[nodiscard]] bool has_room(std::size_t) const override { return true; }
  bool start(std::size_t) override { return false; }
  void wait(std::size_t) override {}
  void release(std::size_t) noexcept override {}
  void about_to_write() override {}
  void part_written(std::size_t flat) override {
    const flat_parameter& each = plan_.flats()[flat];
    std::vector<std::size_t> counts;
    for (int rank = 0; rank < group_.size(); ++rank) {
      counts.push_back(begin_of(each, rank + 1) - begin_of(each, rank));
    }
    const std::size_t mine = counts[static_cast<std::size_t>(group_.rank())];
    all_gather_v(group_, const_buffer_view{part(flat), mine, each.type},
                 buffer_view{arrays_[flat], each.count, each.type}, counts,
                 {.tag = static_cast<int>(each.unit)}, site_);
  }

 private:
  /// The caller's array has no padding: the last parts are shorter, or empty.
  [[nodiscard]] static std::size_t begin_of(const flat_parameter& flat, int rank) {
    return std::min(flat.count, flat.part * static_cast<std::size_t>(rank));
  }

  const unit_plan& plan_;
  process_group& group_;
  const std::vector<std::byte*> arrays_;
  const call_site site_;
};

}  // namespace parx::detail
