// The bytes that parx puts on a link, without any I/O.
//
// link_hello:  what the connecting rank sends first; the accepting side closes anything else.
// call_header: precedes the payload of one operation on one link in one direction. It is the
//   operation's fingerprint: equal headers imply equal schedules, so the payload needs no framing
//   of its own, and a difference is found before the operation can end well.
// segment_header: precedes each piece of a link that runs over several connections.
// The first two are 64 bytes; all are little-endian.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

static_assert(std::endian::native == std::endian::little,
              "parx sends integers as they lie in memory; a big-endian port must swap them here");

inline constexpr std::size_t frame_size = 64;
using frame_bytes = std::array<std::byte, frame_size>;

struct link_hello {
  static constexpr std::uint32_t expected_magic = 0x31485850;  // "PXH1"
  std::uint32_t magic = expected_magic;
  std::uint32_t channel = 0;
  std::uint64_t group = 0;
  std::int32_t from = -1;  ///< the connecting rank, in the group's numbering
  std::int32_t to = -1;
  std::array<char, 32> token{};  ///< the job's token, read from its store
  std::int32_t stream = 0;  ///< of the connections that are one link, or of the shared areas
  std::int32_t reserved = 0;
};
static_assert(sizeof(link_hello) == frame_size && std::is_trivially_copyable_v<link_hello>);

[[nodiscard]] inline std::optional<link_hello> parse_hello(const frame_bytes& bytes) noexcept {
  const auto frame = std::bit_cast<link_hello>(bytes);
  if (frame.magic != link_hello::expected_magic || frame.channel > 3) return std::nullopt;
  return frame;
}

struct segment_header {
  std::uint64_t offset = 0;   ///< of its first byte among all that the link has carried this way
  std::uint32_t length = 0;   ///< bytes behind this header
  std::uint32_t striped = 0;  ///< bytes behind those that may come over any of the connections
};
static_assert(sizeof(segment_header) == 16 && std::is_trivially_copyable_v<segment_header>);

struct call_header {
  static constexpr std::uint32_t expected_magic = 0x31435850;  // "PXC1"
  static constexpr std::uint8_t no_reduction = 255;
  static constexpr std::uint8_t user_reduction = 254;
  static constexpr std::uint8_t user_type = 255;  ///< no dtype: the caller's own struct
  std::uint32_t magic = expected_magic;
  std::uint8_t operation = 0;
  std::uint8_t type = 0;                  ///< dtype, or user_type
  std::uint8_t reduction = no_reduction;  ///< reduce_op, or user_reduction
  std::uint8_t algorithm = 0;
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::int32_t root = -1;  ///< the root, or a message's tag
  std::uint32_t line = 0;
  std::uint32_t sizes = 0;       ///< hash of uneven counts, coalesced buffers and a struct's size
  std::uint32_t arithmetic = 0;  ///< hash of what scales the result or orders the reduction
  std::array<char, 16> file{};

  void set_file(std::string_view name) noexcept {
    file.fill('\0');
    // The tail of an over-long name tells more than its head.
    if (name.size() > file.size()) name.remove_prefix(name.size() - file.size());
    std::copy(name.begin(), name.end(), file.begin());
  }
  [[nodiscard]] std::string_view file_name() const noexcept {
    return {file.data(),
            static_cast<std::size_t>(std::find(file.begin(), file.end(), '\0') - file.begin())};
  }
  /// Equal in everything that decides what is sent. The line may differ: ranks may take different
  /// branches to the same operation.
  [[nodiscard]] bool matches(const call_header& other) const noexcept {
    return magic == other.magic && operation == other.operation && type == other.type &&
           reduction == other.reduction && algorithm == other.algorithm && group == other.group &&
           sequence == other.sequence && count == other.count && root == other.root &&
           sizes == other.sizes && arithmetic == other.arithmetic;
  }
};
static_assert(sizeof(call_header) == frame_size && std::is_trivially_copyable_v<call_header>);

[[nodiscard]] inline std::optional<call_header> parse_call_header(
    const frame_bytes& bytes) noexcept {
  const auto frame = std::bit_cast<call_header>(bytes);
  if (frame.magic != call_header::expected_magic) return std::nullopt;
  return frame;
}

/// 64-bit FNV-1a: group ids from names, layout hashes. Not for what must resist an attacker.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text,
                                            std::uint64_t hash = 0xcbf29ce484222325u) noexcept {
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

}  // namespace parx::detail
