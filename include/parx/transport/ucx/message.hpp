// ucx_header: what precedes the bytes of each message of parx over UCX. No I/O. Little-endian.
//
// Whoever reaches UCX's port can send a message to this process. So each header has a tag, 64 bits
// of the proof that a hello over TCP carries (link_proof.hpp): only a rank that has read the
// receiver's challenge in the job's store and knows the job's secret can compute it. It does not
// help against somebody who reads the network.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include <parx/transport/detail/frame.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

enum class ucx_kind : std::uint8_t {
  hello,   ///< to a process, not to a link: the connection is to be made now
  data,    ///< the next bytes of a link's stream
  credit,  ///< `consumed` alone
  end,     ///< the sender has closed the link: nothing follows
};

struct ucx_header {
  std::uint64_t tag = 0;
  std::uint64_t group = 0;
  std::uint64_t consumed = 0;  ///< eager bytes of the opposite stream that its receiver has taken
  std::int32_t from = -1;      ///< the sender's rank in the group
  std::int32_t to = -1;
  std::int32_t rank = -1;    ///< the sender's rank in the job
  std::uint32_t number = 0;  ///< of the earlier data and end messages of this stream
  purpose what_for = purpose::collective;
  ucx_kind kind = ucx_kind::hello;
  std::array<std::uint8_t, 3> unused{};
};
static_assert(sizeof(ucx_header) == 48 && std::is_trivially_copyable_v<ucx_header>);

/// A header and, in the same memory, the parx prefix that UCX sends with it.
struct ucx_front {
  ucx_header header;
  std::array<std::byte, prefix_bytes> prefix;
};
static_assert(sizeof(ucx_front) == sizeof(ucx_header) + prefix_bytes);

/// The header at the beginning of received bytes; nullopt where they are no message of parx.
[[nodiscard]] inline std::optional<ucx_header> parse_ucx_header(
    std::span<const std::byte> bytes) noexcept {
  ucx_header header;
  if (bytes.size() < sizeof header || bytes.size() > sizeof(ucx_front)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.what_for > purpose::message || header.kind > ucx_kind::end) return std::nullopt;
  return header;
}

/// What the tag of a link's messages is computed from.
[[nodiscard]] inline link_hello hello_of(const ucx_header& header) noexcept {
  link_hello hello;
  hello.what_for = header.what_for;
  hello.group = header.group;
  hello.from = header.from;
  hello.to = header.to;
  hello.rank = header.rank;
  hello.count = ~std::uint64_t{0};  // that of no connection over TCP, whose proof is another one
  return hello;
}

}  // namespace parx::detail
