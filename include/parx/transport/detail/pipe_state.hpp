// pipe_state: what the two ends of a shared pipe (detail/shared_pipe.hpp) see of each other, and
// the prefix of a small message as words.
//
// Each side's fields lie on cache lines of their own. All counts of bytes only grow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <parx/transport/transport.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::size_t cache_line = 64;

/// The shared fields.
struct pipe_state {
  // Written by the sender.
  alignas(cache_line) std::atomic<std::uint64_t> written{0};  ///< bytes put into the ring
  std::atomic<std::uint64_t> offered{0};                      ///< bytes offered where they lie
  std::atomic<std::uint64_t> bias{0};  ///< offered byte k lies at the sender's address bias + k
  std::atomic<std::uint32_t> withdrawn{0};  ///< the sender has closed: no offer holds any more
  // The inline message: what `written` counted last, if that was one small message with a prefix
  // like the last one's. It is in the ring as well, for a receiver that comes late. Its mark is
  // inline_mark_of(), or 0 while there is none or it is being written.
  static constexpr std::size_t inline_words = 3;
  std::atomic<std::uint32_t> inline_mark{0};
  std::atomic<std::uint64_t> inline_number{0};
  std::atomic<std::uint64_t> inline_body[inline_words]{};
  // Written by the receiver.
  alignas(cache_line) std::atomic<std::uint64_t> read{0};
  std::atomic<std::uint64_t> taken{0};
  std::atomic<std::uint32_t> can_take{0};  ///< the receiver may read the sender's memory
  // A share: what the receiver would like the sender to write. Each has a number. The sender takes
  // one that is open, and then has written it or refuses it; what it has not taken in time, the
  // receiver refuses it and reads itself. While a share is taken, that memory of the receiver's
  // must stay what it is.
  alignas(cache_line) std::atomic<std::uint32_t> share{share_refused};
  std::atomic<std::uint32_t> helps{0};     ///< the sender will look for shares of what it offers
  std::atomic<std::uint64_t> share_at{0};  ///< the first byte, counted as `offered` is
  std::atomic<std::uint64_t> share_size{0};
  std::atomic<std::uint64_t> share_to{0};  ///< the receiver's address of that byte
  std::atomic<std::uint64_t> landed_at{0};  ///< and that of `landed`
  std::atomic<std::uint64_t> guard_at{0};   ///< and what is written ahead of it: see write_guard
  /// The number of the last share that is written whole. The kernel puts it there after the share,
  /// so that a sender which is stopped as it comes back from writing does not keep the receiver's
  /// memory until it is continued.
  std::atomic<std::uint32_t> landed{share_refused};
  static constexpr std::uint32_t share_open = 0, share_taken = 1, share_written = 2,
                                 share_refused = 3;
  static constexpr std::uint32_t share_stages = 4;  ///< a share's number: a multiple plus a stage
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(pipe_state) == 3 * cache_line);

/// A prefix as words. One is copied word by word, as its fields were written: a wider load of what
/// was stored in parts has to wait until all stores before have left the core, those of the last
/// message included.
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
      std::atomic_signal_fence(std::memory_order_seq_cst);  // or the compiler makes them one
    }
  }
  /// Whether the prefix there differs in its number at most.
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

/// Names the inline message of `body` bytes that ends at `written`: never 0.
[[nodiscard]] inline std::uint32_t inline_mark_of(std::uint64_t written,
                                                  std::size_t body) noexcept {
  static_assert(pipe_state::inline_words * sizeof(std::uint64_t) < 31);
  return static_cast<std::uint32_t>(written << 5 | (body + 1));
}

}  // namespace parx::detail
