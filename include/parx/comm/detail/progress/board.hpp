// board: where the ranks of a group that share memory sign in when they meet.
//
// Each rank has a page that only it writes. It signs by writing its call's header there, with the
// number of the meeting in place of the magic number, which comes last. So whoever sees the number
// sees the header as well, and everything that the rank has written before; and a rank that calls
// something else is found out at once. Meetings take two places in turn: a rank can be one meeting
// ahead of those who still read where it signed for the last one, but not two.
// Threads: belongs to whoever drives the group's progress.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include <parx/comm/detail/progress/call_header.hpp>
#include <parx/transport/transport.hpp>

namespace parx::inline PARX_ABI::detail {

class board {
 public:
  /// Of each rank's part of the group's memory, from its beginning.
  static constexpr std::size_t bytes = 4096;

  /// `memory` was zeroed before any rank saw it. Others may have signed for their first meeting.
  void open(std::shared_ptr<const shared_area> memory, int rank) {
    memory_ = std::move(memory);
    rank_ = rank;
  }

  /// Comes to the next meeting, that of the call `mine`.
  void sign(const call_header& mine) noexcept {
    const auto words = std::bit_cast<header_line>(mine);
    place& own = place_of(rank_, ++meeting_);
    for (std::size_t i = 1; i < words.size(); ++i) {
      own.words[i].store(words[i], std::memory_order_relaxed);
    }
    own.words[0].store(numbered(words[0]), std::memory_order_release);
  }

  /// Whether a rank has come to this meeting, too.
  [[nodiscard]] bool has_signed(int rank) const noexcept {
    return number_of(first_word(rank).load(std::memory_order_acquire)) == meeting_;
  }
  /// What the rank signed with.
  [[nodiscard]] call_header header_of(int rank) const noexcept {
    const place& theirs = place_of(rank, meeting_);
    header_line words;
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = theirs.words[i].load(std::memory_order_relaxed);
    }
    auto header = std::bit_cast<call_header>(words);
    header.magic = call_header::expected_magic;
    return header;
  }
  /// Where a rank signs, and what that becomes where it signs for `call`.
  [[nodiscard]] const std::atomic<std::uint64_t>& first_word(int rank) const noexcept {
    return place_of(rank, meeting_).words[0];
  }
  [[nodiscard]] std::uint64_t first_word_of(const call_header& call) const noexcept {
    return numbered(std::bit_cast<header_line>(call)[0]);
  }

 private:
  using header_line = std::array<std::uint64_t, header_size / sizeof(std::uint64_t)>;
  static_assert(offsetof(call_header, magic) == 0 && sizeof(call_header::magic) == 4);

  struct alignas(header_size) place {
    std::atomic<std::uint64_t> words[std::tuple_size_v<header_line>];
  };
  /// Two lines each: a core fetches lines in pairs.
  static constexpr std::size_t distance = 2 * sizeof(place);
  static_assert(2 * distance <= bytes);

  [[nodiscard]] static std::uint32_t number_of(std::uint64_t first) noexcept {
    return static_cast<std::uint32_t>(first);
  }
  [[nodiscard]] std::uint64_t numbered(std::uint64_t first) const noexcept {
    return (first & ~std::uint64_t{0xffffffff}) | meeting_;
  }
  [[nodiscard]] place& place_of(int rank, std::uint32_t meeting) const noexcept {
    std::byte* const page = memory_->of_rank[static_cast<std::size_t>(rank)];
    return *std::launder(reinterpret_cast<place*>(page + (meeting % 2) * distance));
  }

  std::shared_ptr<const shared_area> memory_;
  int rank_ = 0;
  std::uint32_t meeting_ = 0;  ///< may wrap: what a place held before is two less, then too
};

}  // namespace parx::detail
