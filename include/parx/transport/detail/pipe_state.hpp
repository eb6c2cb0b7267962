// pipe_state: the fields that the two ends of a shared pipe (detail/shared_pipe.hpp) share, and the
// prefix of a small message as words.
//
// Each side writes to cache lines of its own. Byte counts only grow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::size_t cache_line = 64;

/// The shared fields.
struct pipe_state {
  // Written by the sender.
  alignas(cache_line) std::atomic<std::uint64_t> written{0};  ///< bytes put into the ring
  std::atomic<std::uint64_t> offered{0};  ///< bytes offered for reading from the sender's memory
  std::atomic<std::uint64_t> bias{0};  ///< offered byte k lies at the sender's address bias + k
  std::atomic<std::uint32_t> withdrawn{0};  ///< the sender has closed: offers are no longer valid
  // The inline message: a copy of the latest message in the ring, if that is small and its prefix
  // differs from the previous one's in the number only. A receiver that is further behind reads
  // the ring. The mark is inline_mark_of(), or 0 while there is no inline message or it is being
  // written.
  static constexpr std::size_t inline_words = 3;
  std::atomic<std::uint32_t> inline_mark{0};
  std::atomic<std::uint64_t> inline_number{0};
  std::atomic<std::uint64_t> inline_body[inline_words]{};
  // Written by the receiver.
  alignas(cache_line) std::atomic<std::uint64_t> read{0};
  std::atomic<std::uint64_t> taken{0};  ///< of the offered bytes
  std::atomic<std::uint32_t> can_read{0};  ///< the receiver may read the sender's memory
  // A write request: the receiver asks the sender to write a part of what it offers, while the
  // receiver reads the part before it. `request` is the request's number plus its stage. The sender
  // accepts an open request, and then has written it or refuses it. A request that is still open
  // when the receiver has finished its own part is refused by the receiver, which reads that part
  // as well. While a request is accepted, the receiver's memory there must not be used for anything
  // else.
  alignas(cache_line) std::atomic<std::uint32_t> request{request_refused};
  std::atomic<std::uint32_t> sender_writes{0};  ///< the sender serves requests for this offer
  std::atomic<std::uint64_t> request_at{0};     ///< its first byte, counted as in `offered`
  std::atomic<std::uint64_t> request_size{0};
  std::atomic<std::uint64_t> request_to{0};  ///< the receiver's address for that byte
  std::atomic<std::uint64_t> completed_address{0};  ///< of `completed`, in the receiver
  std::atomic<std::uint64_t> guard_address{0};  ///< in the receiver, written first: see write_guard
  /// The number of the latest request that is written completely. The kernel stores it after the
  /// bytes, so that a sender that is stopped on its way out of the system call does not block the
  /// receiver's memory until it is continued.
  std::atomic<std::uint32_t> completed{request_refused};
  static constexpr std::uint32_t request_open = 0, request_accepted = 1, request_written = 2,
                                 request_refused = 3;
  static constexpr std::uint32_t request_stages = 4;  ///< numbers are multiples of this
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(pipe_state) == 3 * cache_line);

/// A prefix as words. It is copied word by word, the size in which its fields were written. A wider
/// load would span several stores, which store forwarding does not serve: it would stall until all
/// earlier stores, also those of the previous message, have left the store buffer.
struct prefix_words {
  static constexpr std::size_t count = prefix_bytes / sizeof(std::uint64_t);
  static constexpr std::size_t number = prefix_number_at / sizeof(std::uint64_t);
  std::uint64_t of[count] = {};

  void read(const std::byte* from) noexcept {
    for (std::size_t i = 0; i < count; ++i) of[i] = word_at(from, i);
  }
  void write(std::byte* to) const noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(to + i * sizeof of[i], &of[i], sizeof of[i]);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // else the compiler merges the words
    }
  }
  /// Whether the prefix at `other` is equal, except perhaps for its number.
  [[nodiscard]] bool are_like(const std::byte* other) const noexcept {
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (i != number) difference |= of[i] ^ word_at(other, i);
    }
    return difference == 0;
  }
  [[nodiscard]] static std::uint64_t word_at(const std::byte* prefix, std::size_t i) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, prefix + i * sizeof word, sizeof word);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return word;
  }
};

/// The first up to 8 of `size` bytes, the others 0; size > 0. It is put together in registers: a
/// load of a word into which fewer bytes were just copied would stall, as above.
[[nodiscard]] inline std::uint64_t word_of(const std::byte* from, std::size_t size) noexcept {
  const auto load = [from]<typename Part>(Part part, std::size_t at) {
    std::memcpy(&part, from + at, sizeof part);
    return std::uint64_t{part};
  };
  if (size >= 8) return load(std::uint64_t{}, 0);
  // Two parts that overlap where the size is no power of two.
  if (size >= 4)
    return load(std::uint32_t{}, 0) | load(std::uint32_t{}, size - 4) << 8 * (size - 4);
  if (size >= 2)
    return load(std::uint16_t{}, 0) | load(std::uint16_t{}, size - 2) << 8 * (size - 2);
  return load(std::uint8_t{}, 0);
}

/// Identifies the inline message of `body` bytes that ends at `written`; never 0.
[[nodiscard]] inline std::uint32_t inline_mark_of(std::uint64_t written,
                                                  std::size_t body) noexcept {
  static_assert(pipe_state::inline_words * sizeof(std::uint64_t) < 31);
  return static_cast<std::uint32_t>(written << 5 | (body + 1));
}

}  // namespace parx::detail
