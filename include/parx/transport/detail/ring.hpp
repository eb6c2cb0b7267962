// ring: the bytes of a pipe that are copied into shared memory and out of it again.
//
//   read                 written            read + capacity
//     | published bytes     | room                |          `written` and `read` only grow; a byte
//                                                            lies at its number modulo capacity
//
// Inline message: the cost of a small message is the number of cache lines that move between the
// cores. So the smallest messages whose prefix repeats, except for its number, are also stored on
// the line that announces them.
// Threads: one writer and one reader, in two processes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <parx/transport/detail/pipe_state.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class ring_writer {
 public:
  ring_writer() = default;
  /// `capacity` is a power of two.
  ring_writer(pipe_state& state, std::byte* ring, std::size_t capacity) noexcept
      : state_(&state), ring_(ring), capacity_(capacity) {}

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Larger messages are put in pieces.
  [[nodiscard]] std::size_t most_whole() const noexcept { return capacity_ / 32; }
  [[nodiscard]] bool has_room() const noexcept {
    return written_ - state_->read.load(std::memory_order_acquire) < capacity_;
  }

  /// Puts a small message whole and publishes it, as each publication moves a cache line to the
  /// other core. False, and nothing done, where it is not small or does not fit now.
  bool put_whole(const const_bytes& first, const const_bytes& second) noexcept {
    if (!fits_at_once(first.size + second.size)) return false;
    const bool repeats =
        first.size == prefix_bytes && knows_prefix_ && prefix_.are_like(first.data);
    if (first.size == prefix_bytes) put_prefix(first);
    else put_small(first);
    put_small(second);
    if (repeats && second.size <= sizeof state_->inline_body) write_inline(second);
    else withdraw_inline();
    publish();
    return true;
  }
  /// Puts what fits of the rest of a header.
  std::size_t put_header(const const_bytes& header) noexcept {
    withdraw_inline();
    const std::size_t sent = put(header);
    if (header.size > 0) {
      knows_prefix_ = sent == prefix_bytes;
      if (knows_prefix_) prefix_.read(header.data);
    }
    return sent;
  }
  /// Copies in pieces, so that the receiver copies one while the next is written. Publishes all but
  /// the last.
  std::size_t put(const const_bytes& piece) noexcept {
    std::size_t done = 0;
    while (done < piece.size) {
      const std::size_t wanted = std::min(piece.size - done, capacity_ / 4);
      if (capacity_ - (written_ - read_) < wanted) {
        read_ = state_->read.load(std::memory_order_acquire);
      }
      const std::size_t size =
          std::min(wanted, capacity_ - static_cast<std::size_t>(written_ - read_));
      if (size == 0) break;
      if (done > 0) publish();
      const std::size_t at = written_ & (capacity_ - 1);
      const std::size_t head = std::min(size, capacity_ - at);
      std::memcpy(ring_ + at, piece.data + done, head);
      if (size > head) std::memcpy(ring_, piece.data + done + head, size - head);
      written_ += size;
      done += size;
    }
    return done;
  }
  void publish() noexcept { state_->written.store(written_, std::memory_order_release); }

 private:
  /// Whether a small message fits without wrapping around, by the `read` that was last seen.
  [[nodiscard]] bool fits_at_once(std::size_t bytes) const noexcept {
    const auto used = static_cast<std::size_t>(written_ - read_);
    const std::size_t at = written_ & (capacity_ - 1);
    return bytes <= most_whole() && bytes <= capacity_ - used && bytes <= capacity_ - at;
  }
  void put_small(const const_bytes& piece) noexcept {
    std::byte* to = ring_ + (written_ & (capacity_ - 1));
    if (piece.size > 0) std::memcpy(to, piece.data, piece.size);
    written_ += piece.size;
  }
  void put_prefix(const const_bytes& prefix) noexcept {
    prefix_.read(prefix.data);
    prefix_.write(ring_ + (written_ & (capacity_ - 1)));
    knows_prefix_ = true;
    written_ += prefix_bytes;
  }
  /// The words are read before the first store to the line: the receiver, which polls it, would
  /// take the line away between two stores that are far apart.
  void write_inline(const const_bytes& body) noexcept {
    std::uint64_t words[pipe_state::inline_words];
    const std::size_t count = (body.size + sizeof words[0] - 1) / sizeof words[0];
    for (std::size_t i = 0; i < count; ++i) {
      words[i] = word_of(body.data + i * sizeof words[0], body.size - i * sizeof words[0]);
    }
    state_->inline_mark.store(0, std::memory_order_relaxed);
    state_->inline_number.store(prefix_.of[prefix_words::number], std::memory_order_release);
    for (std::size_t i = 0; i < count; ++i) {
      state_->inline_body[i].store(words[i], std::memory_order_release);
    }
    state_->inline_mark.store(inline_mark_of(written_, body.size), std::memory_order_release);
    has_inline_ = true;
  }
  /// Marks repeat after many bytes, so an old inline message must not stay valid.
  void withdraw_inline() noexcept {
    if (std::exchange(has_inline_, false)) state_->inline_mark.store(0, std::memory_order_relaxed);
  }

  pipe_state* state_ = nullptr;
  std::byte* ring_ = nullptr;
  std::size_t capacity_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;  ///< as last seen
  bool has_inline_ = false;
  bool knows_prefix_ = false;
  prefix_words prefix_;  ///< the last one sent, valid if knows_prefix_
};

class ring_reader {
 public:
  ring_reader() = default;
  ring_reader(pipe_state& state, const std::byte* ring, std::size_t capacity) noexcept
      : state_(&state), ring_(ring), capacity_(capacity) {}

  void begin_receive() noexcept { read_before_ = read_; }
  /// Whether the writer may be waiting for room since begin_receive(). The relaxed load is recent
  /// enough: a writer that waits for room has filled the ring, which takes longer than a store
  /// takes to become visible.
  [[nodiscard]] bool awaited() const noexcept {
    return state_->written.load(std::memory_order_relaxed) - read_before_ >= capacity_ / 2;
  }
  /// Whether all bytes that were seen to be published are read.
  [[nodiscard]] bool is_empty() const noexcept { return written_ == read_; }
  void look() noexcept { written_ = state_->written.load(std::memory_order_acquire); }
  [[nodiscard]] bool has_unseen() const noexcept {
    return state_->written.load(std::memory_order_acquire) != read_;
  }

  /// Receives the latest message from the cache line that announced it; 0 where the message that
  /// is wanted is not stored there.
  std::size_t take_inline(const mutable_bytes& prefix, const mutable_bytes& body) noexcept {
    const auto there = static_cast<std::size_t>(written_ - read_);
    const std::size_t size = there - prefix_bytes;
    if (there < prefix_bytes || size > std::min(body.size, sizeof state_->inline_body)) return 0;
    const std::uint32_t mark = inline_mark_of(written_, size);
    if (state_->inline_mark.load(std::memory_order_acquire) != mark) return 0;
    const std::uint64_t number = state_->inline_number.load(std::memory_order_acquire);
    std::uint64_t words[pipe_state::inline_words];
    for (std::size_t i = 0; i * sizeof words[0] < size; ++i) {
      words[i] = state_->inline_body[i].load(std::memory_order_acquire);
    }
    // As in a seqlock: it may have been overwritten meanwhile.
    if (state_->inline_mark.load(std::memory_order_relaxed) != mark) return 0;
    prefix_.of[prefix_words::number] = number;
    prefix_.write(prefix.data);
    for (std::size_t done = 0, i = 0; done < size; done += sizeof words[0], ++i) {
      std::memcpy(body.data + done, &words[i], std::min(sizeof words[0], size - done));
    }
    read_ = written_;
    state_->read.store(read_, std::memory_order_release);
    return there;
  }

  /// Takes a small message whole; false, and nothing done, where it is not small or not there.
  bool take_whole(const mutable_bytes& first, const mutable_bytes& second) noexcept {
    if (!is_there_at_once(first.size + second.size)) return false;
    take_small(first);
    take_small(second);
    if (first.size == prefix_bytes) prefix_.read(first.data);
    state_->read.store(read_, std::memory_order_release);
    return true;
  }
  /// Takes what is there of the rest of a header.
  std::size_t get_header(const mutable_bytes& header) noexcept {
    const std::size_t got = get(header);
    if (got == prefix_bytes && header.size == prefix_bytes) prefix_.read(header.data);
    return got;
  }
  /// Copies out of the ring, at most a quarter of it at a time, so that the sender soon has room.
  std::size_t get(const mutable_bytes& to, std::size_t skip = 0) noexcept {
    std::size_t done = skip;
    while (done < to.size) {
      const std::size_t wanted = std::min(to.size - done, capacity_ / 4);
      if (written_ - read_ < wanted) written_ = state_->written.load(std::memory_order_acquire);
      const std::size_t size = std::min(wanted, static_cast<std::size_t>(written_ - read_));
      if (size == 0) break;
      const std::size_t at = read_ & (capacity_ - 1);
      const std::size_t head = std::min(size, capacity_ - at);
      std::memcpy(to.data + done, ring_ + at, head);
      if (size > head) std::memcpy(to.data + done + head, ring_, size - head);
      read_ += size;
      done += size;
      state_->read.store(read_, std::memory_order_release);
    }
    return done - skip;
  }

 private:
  /// Whether all wanted bytes lie in the ring, in one small contiguous piece.
  [[nodiscard]] bool is_there_at_once(std::size_t bytes) noexcept {
    if (bytes > capacity_ / 32 || bytes > capacity_ - (read_ & (capacity_ - 1))) return false;
    if (written_ - read_ < bytes) written_ = state_->written.load(std::memory_order_acquire);
    return written_ - read_ >= bytes;
  }
  void take_small(const mutable_bytes& to) noexcept {
    if (to.size > 0) std::memcpy(to.data, ring_ + (read_ & (capacity_ - 1)), to.size);
    read_ += to.size;
  }

  pipe_state* state_ = nullptr;
  const std::byte* ring_ = nullptr;
  std::size_t capacity_ = 0;
  std::uint64_t written_ = 0;  ///< as last seen
  std::uint64_t read_ = 0;
  std::uint64_t read_before_ = 0;  ///< `read_` at begin_receive()
  prefix_words prefix_;            ///< the last one received
};

}  // namespace parx::detail
