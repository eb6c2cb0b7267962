// host_barrier: a barrier of the ranks of a group, in shared memory.
//
// Each rank has a page that only it writes. It arrives by writing its call's header there, with the
// number of the barrier in place of the magic number. The number is stored last, with release
// order: a rank that sees it also sees the header and everything written before. So the barrier
// also finds a rank that is in a different call. Successive barriers alternate between two slots: a
// rank can be one barrier ahead of ranks that still read its last slot, but not two. Threads:
// belongs to the thread that drives the group's progress.
//
// Short messages do not go this way. A mailbox was tried: 64 slots a rank, each with its number and
// the elements beside it, written by that rank only, one step whatever the number of ranks. 4 and
// 64 B, ns, the mailbox beside today's algorithms over links (2026-11-27, EPYC, ranks bound to 2
// cores, the fastest of 200 batches, compilers beside it):
//   2 ranks: all_reduce 288 / 277, 682 / 501   broadcast 179 / 182, 291 / 181
//            all_gather 240 / 256, 547 / 499   all_to_all 252 / 283, 573 / 514
//   4 ranks: all_reduce 3 750 / 4 900, 3 540 / 3 970   broadcast 507 / 215, 556 / 214
// A ring takes as many lines and lets a root run further ahead; what the mailbox gained at 4 B is
// less than issuing a call costs (100 ns, where Open MPI's whole all_reduce takes 190).
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
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class host_barrier {
 public:
  /// Size of the page; it is the beginning of each rank's part of the group's memory.
  static constexpr std::size_t bytes = 4096;

  /// `memory` was zeroed before any rank mapped it. Other ranks may have arrived at their first
  /// barrier already.
  void open(std::shared_ptr<const shared_area> memory, int rank) {
    memory_ = std::move(memory);
    rank_ = rank;
  }

  /// Arrives at the next barrier, which is part of the call `mine`.
  void arrive(const call_header& mine) noexcept {
    const auto words = std::bit_cast<header_line>(mine);
    slot& own = slot_of(rank_, ++barrier_);
    for (std::size_t i = 1; i < words.size(); ++i) {
      own.words[i].store(words[i], std::memory_order_relaxed);
    }
    own.words[0].store(numbered(words[0]), std::memory_order_release);
  }

  /// Whether a rank has arrived at this barrier.
  [[nodiscard]] bool has_arrived(int rank) const noexcept {
    return number_of(first_word(rank).load(std::memory_order_acquire)) == barrier_;
  }
  /// The header of the call in which a rank has arrived.
  [[nodiscard]] call_header header_of(int rank) const noexcept {
    const slot& theirs = slot_of(rank, barrier_);
    header_line words;
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = theirs.words[i].load(std::memory_order_relaxed);
    }
    auto header = std::bit_cast<call_header>(words);
    header.magic = call_header::expected_magic;
    return header;
  }
  /// The word that a rank stores last when it arrives, and its value if the rank arrives in `call`.
  [[nodiscard]] const std::atomic<std::uint64_t>& first_word(int rank) const noexcept {
    return slot_of(rank, barrier_).words[0];
  }
  [[nodiscard]] std::uint64_t first_word_of(const call_header& call) const noexcept {
    return numbered(std::bit_cast<header_line>(call)[0]);
  }

 private:
  using header_line = std::array<std::uint64_t, header_size / sizeof(std::uint64_t)>;
  static_assert(offsetof(call_header, magic) == 0 && sizeof(call_header::magic) == 4);

  struct alignas(header_size) slot {
    std::atomic<std::uint64_t> words[std::tuple_size_v<header_line>];
  };
  /// Two cache lines per slot: cores prefetch lines in pairs.
  static constexpr std::size_t distance = 2 * sizeof(slot);
  static_assert(2 * distance <= bytes);

  [[nodiscard]] static std::uint32_t number_of(std::uint64_t first) noexcept {
    return static_cast<std::uint32_t>(first);
  }
  [[nodiscard]] std::uint64_t numbered(std::uint64_t first) const noexcept {
    return (first & ~std::uint64_t{0xffffffff}) | barrier_;
  }
  [[nodiscard]] slot& slot_of(int rank, std::uint32_t barrier) const noexcept {
    std::byte* const page = memory_->of_rank[static_cast<std::size_t>(rank)];
    return *std::launder(reinterpret_cast<slot*>(page + (barrier % 2) * distance));
  }

  std::shared_ptr<const shared_area> memory_;
  int rank_ = 0;
  std::uint32_t barrier_ = 0;  ///< may wrap: the old number in a slot is always two less
};

}  // namespace parx::detail
