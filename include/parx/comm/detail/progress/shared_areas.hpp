// shared_areas: finds buffers that lie in memory shared with the other ranks of the host.
//
// Threads: those of its group, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <parx/comm/detail/progress/collective_data.hpp>
#include <parx/core/error.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class shared_areas {
 public:
  /// Collective: an area of `bytes` per rank. While it exists, find() finds buffers in it. Throws
  /// parx::error.
  [[nodiscard]] std::shared_ptr<const shared_area> make(links& network, std::size_t bytes,
                                                        deadline limit) {
    std::shared_ptr<const shared_area> area;
    try {
      area.reset(new shared_area(network.share(bytes, ++made_, limit)));
    } catch (const link_lost& lost) {
      throw error(errc::peer_lost,
                  "memory cannot be shared with " + network.describe(lost.peer), {},
                  std::current_exception());
    }
    std::erase_if(areas_, [](const part& each) { return each.area.expired(); });
    if (network.shares_memory()) {
      areas_.push_back({place_of(area->of_rank[static_cast<std::size_t>(network.rank())]), bytes,
                        area.get(), area});
    }
    return area;
  }

  /// Where this rank's buffer lies in an area; empty if it lies in none.
  [[nodiscard]] shared_view find(const void* data, std::size_t bytes) const {
    const std::uintptr_t at = place_of(data);
    for (const part& each : areas_) {
      if (!each.holds(at) || bytes > each.bytes - (at - each.begin)) continue;
      // Its owner keeps it until the call has ended, so that no locked instruction is needed here.
      if (!each.area.expired()) return {each.address, at - each.begin};
    }
    return {};
  }

 private:
  /// This rank's part of an area. The buffers in the area own it.
  struct part {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    const shared_area* address = nullptr;
    std::weak_ptr<const shared_area> area;

    [[nodiscard]] bool holds(std::uintptr_t at) const noexcept {
      return at >= begin && at - begin <= bytes;
    }
  };

  [[nodiscard]] static std::uintptr_t place_of(const void* data) noexcept {
    return reinterpret_cast<std::uintptr_t>(data);
  }

  std::uint64_t made_ = 0;
  std::vector<part> areas_;
};

}  // namespace parx::detail
