// message_lane: the messages between this rank and one other: those that wait to be sent, the
// receives that wait, and the one that is arriving.
//
// A message is its header, then its extents if the sender gave any, then its bytes.
// Threads: belongs to the thread that drives the group's progress.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/detail/progress/call_header.hpp>
#include <parx/core/error.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

/// A receive matched a message of another length or type.
struct message_mismatch {
  call* receive;
  int peer;
  call_header theirs;
};

/// A message that has come before its receive.
struct kept_message {
  call_header header;
  axis_extents extents;
  std::vector<std::byte> bytes;
  std::size_t filled = 0;
};

struct message_lane {
  link* stream = nullptr;
  std::optional<link_lost> lost{};  ///< why no more can come
  int peer = -1;
  std::vector<call*> sends;
  std::size_t front_sent = 0;  ///< bytes of the first send's header and extents
  std::size_t body_sent = 0;
  std::vector<call*> receives;
  std::list<kept_message> kept;  ///< unexpected; the last one may still be arriving
  std::uint32_t received = 0;    ///< messages, whole ones
  // The message that is arriving.
  call_header arriving{};
  std::array<std::size_t, axis_extents::most> extents{};
  std::size_t front_received = 0;  ///< bytes of header and extents
  call* target = nullptr;
  bool arriving_kept = false;
  std::size_t body_received = 0;
  std::size_t body_size = 0;

  [[nodiscard]] axis_extents arriving_extents() const {
    if (arriving.sizes == 0) return {};
    return std::span<const std::size_t>(extents.data(), arriving.sizes - 1);
  }
  /// Bytes before the body, as far as is known: extents only once the header has arrived.
  [[nodiscard]] std::size_t front_size() const noexcept {
    if (front_received < header_size) return header_size;
    return header_size + (arriving.sizes > 0 ? arriving.sizes - 1 : 0) * sizeof(std::size_t);
  }
  /// Whether a message has arrived up to its body and no receive or buffer is assigned to it.
  [[nodiscard]] bool is_unexpected() const noexcept {
    return target == nullptr && !arriving_kept && front_received == front_size();
  }
  /// Throws link_lost if what has arrived cannot be a message's header.
  void check_header() const {
    if (arriving.magic != call_header::expected_magic || arriving.type >= dtype_count ||
        arriving.sizes > axis_extents::most + 1) {
      throw link_lost(peer, "it sent bytes that are no parx message");
    }
  }

  /// The receive that waits for this message, or null.
  [[nodiscard]] call* matching_receive(const call_header& message) const noexcept {
    for (call* each : receives) {
      if (each->header.root == message.root) return each;
    }
    return nullptr;
  }
  [[nodiscard]] std::list<kept_message>::iterator find_kept(const call& receive) {
    return std::find_if(kept.begin(), kept.end(), [&](const kept_message& each) {
      return each.header.root == receive.header.root;
    });
  }
};

[[nodiscard]] inline std::size_t body_bytes(const call_header& header) noexcept {
  return static_cast<std::size_t>(header.count) * size_of(static_cast<dtype>(header.type));
}

/// Allocates memory for a recv_any_shape. Throws message_mismatch.
inline void make_room(call& receive, int peer, const call_header& theirs,
                      const axis_extents& extents) {
  const any_shape_receive& any_shape = *receive.any_shape;
  const auto type = static_cast<dtype>(theirs.type);
  const std::size_t bytes = body_bytes(theirs);
  if ((any_shape.type && *any_shape.type != type) || bytes > any_shape.max_bytes) {
    throw message_mismatch{&receive, peer, theirs};
  }
  const std::size_t count = static_cast<std::size_t>(theirs.count);
  const auto room = any_shape.allocate(type, extents.given() ? extents : axis_extents{count});
  if (room.size() < bytes) {
    throw_error(errc::mismatch, "the allocator of a recv_any_shape gave {} bytes for {}",
                room.size(), bytes);
  }
  receive.memory = room.data();
  receive.bytes = bytes;
}
/// Throws message_mismatch if the receive is not for this message.
inline void accept(call& receive, int peer, const call_header& theirs,
                   const axis_extents& extents) {
  if (receive.any_shape != nullptr) return make_room(receive, peer, theirs, extents);
  if (theirs.count != receive.header.count || theirs.type != receive.header.type) {
    throw message_mismatch{&receive, peer, theirs};
  }
}

}  // namespace parx::detail
