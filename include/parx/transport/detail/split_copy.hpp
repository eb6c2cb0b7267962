// split copy: the sender of an offer helps to copy it. While the receiver reads the first half of a
// piece, the sender writes the second half to its destination with process_vm_writev.
//
// A write request is a number plus its stage, which the two ends change by compare_exchange:
//
//   receiver opens        sender accepts         sender has written
//   ------------> open -----------------> accepted -----------------> written  counted as taken
//                  |                          |
//                  | receiver closes it       | the write failed
//                  +--------> refused <-------+                     then read by the receiver
//
// Between accepted and written the destination belongs to the sender: a receiver that closes waits
// for that (reclaim), and takes the permission away from a sender that was stopped (write_guard).
// Worth it from 64 KiB on where traffic goes in one direction, so that both cores copy.
// Threads: one sender and one receiver, in two processes.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <parx/transport/detail/address.hpp>
#include <parx/transport/detail/offer.hpp>
#include <parx/transport/detail/pipe_state.hpp>
#include <parx/transport/detail/write_guard.hpp>

namespace parx::inline PARX_ABI::detail {

class split_writer {
 public:
  split_writer() = default;
  explicit split_writer(pipe_state& state) noexcept : state_(&state) {}

  /// Lets this end write the memory of the receiving process.
  void permit(pid_t receiver) noexcept { receiver_ = receiver; }
  [[nodiscard]] bool is_permitted() const noexcept { return receiver_ != 0; }

  /// Before an offer is published: whether this end serves requests for it.
  void set_serving(bool serves) noexcept {
    if (serves == serves_) return;
    serves_ = serves;
    state_->sender_writes.store(serves ? 1 : 0, std::memory_order_relaxed);
  }
  [[nodiscard]] bool serves() const noexcept { return serves_; }
  [[nodiscard]] bool has_open_request() const noexcept {
    return is_open(state_->request.load(std::memory_order_relaxed));
  }
  /// Writes the requested bytes; false where none are requested. `bias`: offer_maker::bias().
  bool serve(std::uint64_t bias) noexcept {
    // One load and one exchange: a request that is refused in between is not accepted.
    std::uint32_t open = state_->request.load(std::memory_order_relaxed);
    if (!is_open(open)) return false;
    const std::uint32_t accepted = open + pipe_state::request_accepted;
    if (!state_->request.compare_exchange_strong(open, accepted, std::memory_order_acquire)) {
      return false;
    }
    const auto size =
        static_cast<std::size_t>(state_->request_size.load(std::memory_order_relaxed));
    const std::uint64_t from = bias + state_->request_at.load(std::memory_order_relaxed);
    const std::uint64_t to = state_->request_to.load(std::memory_order_relaxed);
    const std::uint64_t completed = state_->completed_address.load(std::memory_order_relaxed);
    const std::uint64_t guard = state_->guard_address.load(std::memory_order_relaxed);
    const iovec number{&open, sizeof open};
    const iovec here[] = {number, memory_at(from, size), number};
    const iovec there[] = {memory_at(guard, sizeof open), memory_at(to, size),
                           memory_at(completed, sizeof open)};
    const bool written = ::process_vm_writev(receiver_, here, 3, there, 3, 0) >=
                         static_cast<ssize_t>(sizeof open + size);
    const std::uint32_t stage = written ? pipe_state::request_written : pipe_state::request_refused;
    state_->request.store(open + stage, std::memory_order_release);
    return true;
  }

 private:
  [[nodiscard]] static bool is_open(std::uint32_t request) noexcept {
    return request % pipe_state::request_stages == pipe_state::request_open;
  }

  pipe_state* state_ = nullptr;
  pid_t receiver_ = 0;   ///< 0 where its memory may not be written
  bool serves_ = false;  ///< requests for the present offer
};

class split_reader {
 public:
  split_reader() = default;
  explicit split_reader(pipe_state& state) noexcept : state_(&state) {}

  /// Lets the sender write this rank's memory until `guard` is closed, which must outlive the link.
  void permit(const write_guard& guard) noexcept { guard_ = guard.passed(); }

  /// Whether a request is not finished.
  [[nodiscard]] bool is_open() const noexcept { return requested_ > 0; }
  /// Whether finish() could do something.
  [[nodiscard]] bool ready() const noexcept {
    return state_->request.load(std::memory_order_acquire) !=
           request_ + pipe_state::request_accepted;
  }

  /// Takes a piece of at most `size` offered bytes to `to`, half of it by a request; 0 where it is
  /// not to be split. Throws link_lost.
  std::size_t take(std::byte* to, std::size_t size, offer_taker& offers, pid_t sender, int peer) {
    const std::size_t both = std::min(size, most_split);
    if (both < least_split || state_->sender_writes.load(std::memory_order_relaxed) == 0) return 0;
    const std::size_t page = 4096;  // split at a page boundary, so that no page is pinned twice
    const std::size_t own = both / 2 + page - (address_of(to) + both / 2) % page;
    open(to + own, offers.taken() + own, both - own);
    offers.read(to, own, sender, peer);
    return own + finish(to + own, offers, sender, peer);
  }
  /// Counts the requested bytes at `to` as taken if the sender has written them, else reads them; 0
  /// while the sender is still writing.
  std::size_t finish(std::byte* to, offer_taker& offers, pid_t sender, int peer) {
    const std::uint32_t found = close_request();
    if (found == request_ + pipe_state::request_accepted) return 0;
    const std::size_t size = std::exchange(requested_, 0);
    if (found == request_ + pipe_state::request_written) offers.count_taken(size);
    else offers.read(to, size, sender, peer);
    return size;
  }

  /// Refuses the write request, if the sender has not accepted it. False while the sender writes:
  /// the memory that receive() was given must not be used for anything else yet.
  [[nodiscard]] bool reclaim() noexcept {
    return close_request() != request_ + pipe_state::request_accepted ||
           state_->completed.load(std::memory_order_acquire) == request_;
  }
  /// Whether the sender's system call for the last request has begun to write.
  [[nodiscard]] bool write_has_begun() const noexcept {
    return guard_->load(std::memory_order_acquire) == request_;
  }

 private:
  /// Bounds of a split copy. A smaller piece is read completely before the sender has seen the
  /// request. Per megabyte the two ends wait for each other once, which costs little.
  static constexpr std::size_t least_split = std::size_t{64} << 10;
  static constexpr std::size_t most_split = std::size_t{1} << 20;

  void open(const std::byte* to, std::uint64_t at, std::size_t size) noexcept {
    requested_ = size;
    request_ += pipe_state::request_stages;
    state_->request_at.store(at, std::memory_order_relaxed);
    state_->request_size.store(size, std::memory_order_relaxed);
    state_->request_to.store(address_of(to), std::memory_order_relaxed);
    state_->completed_address.store(address_of(&state_->completed), std::memory_order_relaxed);
    state_->guard_address.store(address_of(guard_), std::memory_order_relaxed);
    state_->request.store(request_, std::memory_order_release);
  }
  /// Refuses the request if it is still open. Returns its number plus the stage that it had.
  std::uint32_t close_request() noexcept {
    std::uint32_t found = request_;
    state_->request.compare_exchange_strong(found, request_ + pipe_state::request_refused,
                                            std::memory_order_acquire);
    return found;
  }

  pipe_state* state_ = nullptr;
  std::uint32_t request_ = 0;  ///< the number of the last write request
  std::size_t requested_ = 0;  ///< bytes of a request that is not finished
  const write_guard::word* guard_ = nullptr;
};

}  // namespace parx::detail
