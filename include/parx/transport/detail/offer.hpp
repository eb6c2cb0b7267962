// offer: the bytes of a pipe that the receiver copies out of the sender's memory.
//
//   taken            offered
//     | memory offered  |      byte n of all that was ever offered lies at `bias` + n
//
// The sender publishes the address of a large piece, and the receiver copies it with
// process_vm_readv to its destination: one copy, where a ring takes two. Offered bytes count as
// sent once the receiver has taken them. Measured with two ranks: pipe_sender::should_offer.
// Threads: one sender and one receiver, in two processes.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/transport/detail/address.hpp>
#include <parx/transport/detail/pipe_state.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class offer_maker {
 public:
  offer_maker() = default;
  explicit offer_maker(pipe_state& state) noexcept : state_(&state) {}

  /// Whether the receiver has not taken all offered bytes, as far as collect() knows.
  [[nodiscard]] bool is_open() const noexcept { return taken_ < offered_; }
  [[nodiscard]] bool has_news() const noexcept {
    return state_->taken.load(std::memory_order_acquire) != taken_;
  }
  /// Added to the number of an offered byte, this is its address.
  [[nodiscard]] std::uint64_t bias() const noexcept { return bias_; }

  void offer(const const_bytes& piece) noexcept {
    bias_ = address_of(piece.data) - offered_;
    state_->bias.store(bias_, std::memory_order_relaxed);
    offered_ += piece.size;
    state_->offered.store(offered_, std::memory_order_release);
  }
  /// Returns how many offered bytes the receiver has taken since the last call. `rest` are the
  /// bytes that the caller does not know to be sent; if they are more than before, the offer is
  /// extended, which sets `published`.
  std::size_t collect(const const_bytes& rest, bool& published) noexcept {
    const std::uint64_t taken = state_->taken.load(std::memory_order_acquire);
    const auto newly = static_cast<std::size_t>(taken - taken_);
    if (rest.size > offered_ - taken_ && taken < offered_) {
      offered_ = taken_ + rest.size;
      state_->offered.store(offered_, std::memory_order_release);
      published = true;
    }
    taken_ = taken;
    return newly;
  }
  /// Invalidates all offers, before the offered memory is used for something else.
  void withdraw() noexcept { state_->withdrawn.store(1, std::memory_order_seq_cst); }

 private:
  pipe_state* state_ = nullptr;
  std::uint64_t offered_ = 0;
  std::uint64_t taken_ = 0;  ///< as last reported to the caller
  std::uint64_t bias_ = 0;
};

class offer_taker {
 public:
  offer_taker() = default;
  explicit offer_taker(pipe_state& state) noexcept : state_(&state) {}

  void begin_receive() noexcept { took_ = false; }
  /// Whether bytes were taken since begin_receive().
  [[nodiscard]] bool took() const noexcept { return took_; }
  [[nodiscard]] std::uint64_t taken() const noexcept { return taken_; }
  [[nodiscard]] std::uint64_t offered() const noexcept {
    return state_->offered.load(std::memory_order_acquire);
  }

  /// Reads offered bytes from the sender's process. Throws link_lost.
  void read(std::byte* to, std::size_t size, pid_t sender, int peer) {
    while (size > 0) {
      const std::uint64_t from = state_->bias.load(std::memory_order_relaxed) + taken_;
      const iovec here{to, size};
      const iovec there = memory_at(from, size);
      const auto got = ::process_vm_readv(sender, &here, 1, &there, 1, 0);
      if (got <= 0) {
        throw link_lost(peer,
                        formatted("its memory cannot be read any more: {}", errno_text(errno)));
      }
      // Checked after the copy: bytes copied before the sender closed are those that it offered.
      std::atomic_thread_fence(std::memory_order_acquire);
      if (state_->withdrawn.load(std::memory_order_relaxed) != 0) {
        throw closed_by(peer);
      }
      to += got;
      size -= static_cast<std::size_t>(got);
      count_taken(static_cast<std::size_t>(got));
    }
  }
  void count_taken(std::size_t size) noexcept {
    took_ = true;
    taken_ += static_cast<std::uint64_t>(size);
    state_->taken.store(taken_, std::memory_order_release);
  }

 private:
  pipe_state* state_ = nullptr;
  std::uint64_t taken_ = 0;
  bool took_ = false;
};

}  // namespace parx::detail
