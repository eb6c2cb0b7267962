// group_axis: implements gradient_axis by a process group.
#pragma once

#include <cstdint>
#include <span>

#include <parx/autograd/gradient_axis.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/process_group.hpp>

namespace parx::inline PARX_ABI {

class group_axis final : public gradient_axis {
 public:
  /// The group is borrowed.
  explicit group_axis(process_group& group) noexcept : group_(group) {}
  void add_up(std::span<std::int64_t> numbers, call_site site) override {
    all_reduce(group_, numbers, {}, site);
  }

 private:
  process_group& group_;
};

}  // namespace parx
