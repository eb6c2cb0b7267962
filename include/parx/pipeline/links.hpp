// open_links: opens the connections between neighbouring stages. A link's first message takes
// milliseconds, for which each stage in turn would wait in the first step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <parx/comm/collectives/warm_up.hpp>
#include <parx/comm/process_group.hpp>

namespace parx::inline PARX_ABI::detail {

/// Collective. `owner` has the rank of each stage.
inline void open_links(process_group& group, const std::vector<int>& owner) {
  std::vector<int> peers;
  for (std::size_t s = 0; s + 1 < owner.size(); ++s) {
    const int a = owner[s], b = owner[s + 1];
    if (a == b || (a != group.rank() && b != group.rank())) continue;
    const int peer = a == group.rank() ? b : a;
    if (std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
  }
  warm_up(group, peers);
}

}  // namespace parx::detail
