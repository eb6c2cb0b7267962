// The transport's own bytes on a connection. No I/O. Little-endian.
//
// link_hello: what the connecting rank sends first; the accepting side closes anything else.
// segment_header: precedes each segment of a link over several connections (striped.hpp).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

static_assert(std::endian::native == std::endian::little,
              "parx sends integers as they are in memory; a big-endian port must swap them here");

/// The use of a connection. The first two are the channels of links::link_to.
enum class purpose : std::uint32_t {
  collective,
  message,
  memory,  ///< passes the memory of links::share
  wake_up  ///< two processes of a host wake each other over it, for all their groups
};

struct link_hello {
  static constexpr std::uint32_t expected_magic = 0x32485850;  // "PXH2"
  std::uint32_t magic = expected_magic;
  purpose what_for = purpose::collective;
  std::uint64_t group = 0;
  std::int32_t from = -1;  ///< the connecting rank, in the group's numbering
  std::int32_t to = -1;
  std::int32_t stream = 0;  ///< index among a link's connections, or a shared area's id
  std::int32_t rank = -1;   ///< the connecting rank, in the job's numbering
  std::uint64_t count = 0;  ///< of its earlier hellos to this peer
  /// Proves that the sender is a rank of this job: see link_proof. In a job without a secret, the
  /// token from the job's store.
  std::array<unsigned char, 32> proof{};
};
using hello_bytes = std::array<std::byte, sizeof(link_hello)>;
static_assert(sizeof(link_hello) == 72 && std::is_trivially_copyable_v<link_hello>);

[[nodiscard]] inline std::optional<link_hello> parse_hello(const hello_bytes& bytes) noexcept {
  const auto hello = std::bit_cast<link_hello>(bytes);
  if (hello.magic != link_hello::expected_magic || hello.what_for > purpose::wake_up) {
    return std::nullopt;
  }
  return hello;
}

struct segment_header {
  std::uint64_t offset = 0;   ///< of its first byte in the link's byte stream
  std::uint32_t length = 0;   ///< bytes after this header
  std::uint32_t striped = 0;  ///< bytes after the segment that may come over any connection
};
static_assert(sizeof(segment_header) == 16 && std::is_trivially_copyable_v<segment_header>);

}  // namespace parx::detail
