// warm_up: opens the links for messages before the first step needs them.
//
// Otherwise the first message opens its link and takes milliseconds instead of microseconds; a
// pipeline's first step pays that at every stage in turn.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

/// Blocks until the links between this rank and each of `peers` are open, in both directions. Each
/// peer must call it too and list this rank: an empty message goes each way. All links are opened
/// at once, so the order of `peers` does not matter. Links of collectives are opened by the first
/// collective. Throws usage_error for a peer that is this rank or outside the group, parx::error
/// when communication fails (the group is then closed).
inline void warm_up(process_group& group, std::span<const int> peers, warm_up_options options = {},
                    call_site site = call_site::current()) {
  static constexpr int tag = -2;  // users' tags are not negative
  std::unique_ptr<detail::call> first;
  auto* last = &first;
  const detail::call_check check(group, operation::send, site);
  for (const int peer : peers) {
    check.is_rank(peer, "warm_up's peer");
    check.require(peer != group.rank(), "warm_up lists this rank, {}, itself", peer);
    check.require(std::count(peers.begin(), peers.end(), peer) == 1, "warm_up lists rank {} twice",
                  peer);
    for (const operation what : {operation::send, operation::recv}) {
      *last = std::make_unique<detail::call>();
      detail::call& request = **last;
      request.what = what;
      request.site = site;
      request.timeout = options.timeout;
      request.peer = peer;
      request.header.type = static_cast<std::uint8_t>(dtype::uint8);
      request.header.root = tag;
      last = &request.next;
    }
  }
  if (first != nullptr) detail::run(group, *first);
}

}  // namespace parx
