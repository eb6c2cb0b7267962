// call_header: the bytes before the payload of one operation, on each link and in each direction.
//
// It is the operation's fingerprint. Equal headers imply equal schedules, so the payload needs no
// further framing, and different calls are detected before the operation can succeed. Links treat
// it as an opaque prefix. 64 bytes, little-endian.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <parx/core/printable.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

struct call_header {
  static constexpr std::uint32_t expected_magic = 0x31435850;  // "PXC1"
  static constexpr std::uint8_t no_reduction = 255;
  static constexpr std::uint8_t user_reduction = 254;
  static constexpr std::uint32_t any_shape = ~0u;  ///< value of `sizes` for recv_any_shape
  static constexpr std::uint8_t user_type = 255;  ///< not a dtype: a struct of the user's
  std::uint32_t magic = expected_magic;
  std::uint8_t operation = 0;
  std::uint8_t type = 0;                  ///< dtype, or user_type
  std::uint8_t reduction = no_reduction;  ///< reduce_op, or user_reduction
  std::uint8_t algorithm = 0;
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;  ///< even for the program's calls; see number()
  std::uint64_t count = 0;
  std::int32_t root = -1;  ///< the root; without one the tag, or -1
  std::uint32_t line = 0;
  /// Hash of uneven counts, coalesced buffers and a struct's size. Of a message: one more than the
  /// number of extents that follow this header; 0 if none were given.
  std::uint32_t sizes = 0;
  std::uint32_t arithmetic = 0;  ///< hash of the factors and of the reduction order
  std::array<char, 16> file{};

  /// The call's number on this group as the program counts, from 1 on. A call that the group issues
  /// itself before a program's call (host_memory.hpp) has the odd sequence below it.
  [[nodiscard]] std::uint64_t number() const noexcept { return (sequence + 1) / 2; }

  void set_file(std::string_view name) noexcept {
    file.fill('\0');
    // The end of an over-long name says more than its beginning.
    if (name.size() > file.size()) name.remove_prefix(name.size() - file.size());
    std::copy(name.begin(), name.end(), file.begin());
  }
  /// For error texts. Made printable, because another rank has sent it.
  [[nodiscard]] std::string file_name() const {
    return printable(
        {file.data(),
         static_cast<std::size_t>(std::find(file.begin(), file.end(), '\0') - file.begin())});
  }
  /// Whether all fields that determine what is sent are equal. File and line may differ: ranks may
  /// reach the same operation by different branches.
  [[nodiscard]] bool matches(const call_header& other) const noexcept {
    return magic == other.magic && operation == other.operation && type == other.type &&
           reduction == other.reduction && algorithm == other.algorithm && group == other.group &&
           sequence == other.sequence && count == other.count && root == other.root &&
           sizes == other.sizes && arithmetic == other.arithmetic;
  }
};
static_assert(std::is_trivially_copyable_v<call_header>);
static_assert(sizeof(call_header) == prefix_bytes &&
                  offsetof(call_header, sequence) == prefix_number_at,
              "links read the sequence number in the prefix (transport/links.hpp)");

/// Two ranks are in different calls.
struct header_mismatch {
  int peer;
  call_header mine;
  call_header theirs;
  bool is_past = false;  ///< calls of one number, and at least one rank has left its call
};

inline constexpr std::size_t header_size = sizeof(call_header);

}  // namespace parx::detail
