// shared_areas: which of a rank's buffers lie in memory that its host mates see.
//
// Threads: those of its group, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <parx/comm/detail/engine.hpp>
#include <parx/core/error.hpp>
#include <parx/transport/transport.hpp>

namespace parx::detail {

class shared_areas {
 public:
  /// Collective: an area of `bytes` a rank, in which buffers are found by find() while it lives. Throws
  /// parx::error.
  [[nodiscard]] std::shared_ptr<const shared_area> make(transport& network, std::size_t bytes, deadline limit) {
    std::shared_ptr<const shared_area> area;
    try {
      area = std::make_shared<const shared_area>(network.share(bytes, ++made_, limit));
    } catch (const link_lost& lost) {
      throw error(errc::peer_lost, fmt::format("memory cannot be shared with {}: {}",
                                               network.describe(lost.peer), lost.what()), {});
    }
    std::erase_if(areas_, [](const auto& each) { return each.expired(); });
    if (network.shares_memory()) areas_.push_back(area);
    return area;
  }

  /// Where `rank`'s buffer lies in an area; empty where it lies in none.
  /// Whether none was ever made.
  [[nodiscard]] bool empty() const noexcept { return areas_.empty(); }
  [[nodiscard]] shared_view find(int rank, const void* data, std::size_t bytes) const {
    for (const auto& each : areas_) {
      auto area = each.lock();
      if (area == nullptr) continue;
      const auto begin = reinterpret_cast<std::uintptr_t>(area->of_rank[static_cast<std::size_t>(rank)]);
      const auto at = reinterpret_cast<std::uintptr_t>(data);
      if (at >= begin && bytes <= area->bytes && at - begin <= area->bytes - bytes) return {area, at - begin};
    }
    return {};
  }

 private:
  std::uint64_t made_ = 0;
  std::vector<std::weak_ptr<const shared_area>> areas_;
};

}  // namespace parx::detail
