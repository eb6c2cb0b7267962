// ucx_stream: the two directions of one link, as far as the worker's callback must know them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <parx/transport/ucx/inbox.hpp>
#include <parx/transport/ucx/message.hpp>

namespace parx::inline PARX_ABI::detail {

struct ucx_stream {
  ucx_header out;               ///< of the next message to the peer; its tag is 0 until opened
  std::uint64_t in_tag = 0;     ///< that the peer's messages must have
  std::uint32_t in_number = 0;  ///< of the next message from the peer
  ucx_inbox inbox;
  std::uint64_t sent = 0;   ///< eager bytes
  std::uint64_t taken = 0;  ///< of these the peer has received, as it has said
  std::uint64_t told = 0;   ///< inbox.consumed() that the peer knows
  bool ended = false;       ///< the peer has closed its link
  std::string broken;       ///< why the peer's bytes cannot be understood
  bool asleep = false;      ///< a thread sleeps until something changes here

  /// Eager bytes that may be under way or unread: what an idle receiver stores of one link.
  static constexpr std::uint64_t window = std::uint64_t{1} << 20;
  [[nodiscard]] bool admits(std::size_t size) const noexcept {
    return sent - taken + size <= window;
  }
  /// Whether the peer should be told now what it may send.
  [[nodiscard]] bool owes_credit() const noexcept { return inbox.consumed() - told >= window / 4; }
};

}  // namespace parx::detail
