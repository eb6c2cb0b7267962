// unread_call: what a peer has sent for a collective that this rank has not made.
//
// Looked for when a group ends well: two ranks that each take themselves for the root of its last
// call have sent, and never read. What comes later than that is not seen.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include <parx/comm/detail/progress/call_header.hpp>
#include <parx/transport/transport.hpp>

namespace parx::inline PARX_ABI::detail {

struct unread_call {
  int peer;
  call_header theirs;
};

/// Of a group in which no call is under way. Takes the header off the link.
[[nodiscard]] inline std::optional<unread_call> find_unread_call(transport& network) {
  std::optional<unread_call> found;
  network.for_each_link(channel::collective, [&](int peer, link& stream) {
    if (found) return;
    header_bytes bytes;
    std::size_t filled = 0;
    try {
      while (filled < bytes.size()) {
        const std::size_t got =
            stream.try_receive({bytes.data() + filled, bytes.size() - filled}, {});
        if (got == 0) return;
        filled += got;
      }
    } catch (const link_lost&) {
      return;  // it has ended, which this rank need not mind any more
    }
    if (const auto theirs = parse_call_header(bytes)) found = {peer, *theirs};
  });
  return found;
}

}  // namespace parx::detail
