// shared_pipe: one direction of a link through shared memory, an ordered stream of bytes.
//
// Small pieces go through a ring: one copy in, one out. A large piece is offered instead: the
// sender publishes its address, and the receiver copies it with process_vm_readv directly to its
// destination. Nothing goes into the ring until the offer is taken completely, which keeps the
// stream in order. Offered bytes count as sent once the receiver has taken them.
// Split copy: while the receiver reads the first half of a piece, a sender with nothing to receive
// writes the second half to its destination with process_vm_writev (pipe_state::request).
// Inline message: the cost of a small message is the number of cache lines that move between the
// cores. So the smallest messages whose prefix repeats, except for its number, are also stored on
// the line that announces them.
// Threads: one sender and one receiver, in two processes.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/transport/detail/address.hpp>
#include <parx/transport/detail/pipe_state.hpp>
#include <parx/transport/detail/write_guard.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class pipe_sender {
 public:
  pipe_sender() = default;
  /// `capacity` is a power of two.
  pipe_sender(pipe_state& state, std::byte* ring, std::size_t capacity) noexcept
      : state_(&state), ring_(ring), capacity_(capacity) {}

  /// Sends as link::try_send does. A prefix and a small payload are published together, as each
  /// publication moves a cache line to the other core.
  std::size_t send(const const_bytes& first, const const_bytes& second) noexcept {
    published_ = false;
    if (taken_ < offered_) {
      if (writes_) serve_request();
      return collect(second);
    }
    if (const std::size_t both = first.size + second.size; fits_at_once(both)) {
      const bool repeats =
          first.size == prefix_bytes && knows_prefix_ && prefix_.are_like(first.data);
      if (first.size == prefix_bytes) put_prefix(first);
      else put_small(first);
      put_small(second);
      if (repeats && second.size <= sizeof state_->inline_body) write_inline(second);
      else withdraw_inline();
      publish();
      return both;
    }
    withdraw_inline();
    std::size_t sent = put(first);
    if (first.size > 0) {
      knows_prefix_ = sent == prefix_bytes;
      if (knows_prefix_) prefix_.read(first.data);
    }
    const bool offers = sent == first.size && second.size > 0 && should_offer(second);
    if (sent == first.size && !offers) sent += put(second);
    if (sent > 0) publish();
    if (offers) offer(second);
    return sent;
  }

  /// Whether the last send() published something that the receiver may be waiting for.
  [[nodiscard]] bool published() const noexcept { return published_; }

  /// Whether the receiver has not taken all offered bytes, as far as send() knows.
  [[nodiscard]] bool has_offer() const noexcept { return taken_ < offered_; }

  /// Lets this end write the memory of the receiving process.
  void permit_writes(pid_t receiver) noexcept { receiver_ = receiver; }

  /// Invalidates all offers, before the offered memory is used for something else.
  void withdraw() noexcept { state_->withdrawn.store(1, std::memory_order_seq_cst); }

  /// Whether send() could do something.
  [[nodiscard]] bool ready() const noexcept {
    if (taken_ < offered_) {
      return state_->taken.load(std::memory_order_acquire) != taken_ ||
             (writes_ && has_open_request());
    }
    return written_ - state_->read.load(std::memory_order_acquire) < capacity_;
  }

 private:
  /// Measured with two ranks. Bytes that the sender has just written are cheaper to copy twice up
  /// to half a megabyte, because reading them from another core's cache is slow. Other pieces are
  /// offered from 8 KiB on: at 16 KiB one system call costs as much as the second copy, and half as
  /// much where both ranks send. Traffic in one direction only is faster through the ring from two
  /// megabytes on, because there both cores copy, unless a split copy does the same.
  [[nodiscard]] bool should_offer(const const_bytes& piece) const noexcept {
    if (piece.size <= (piece.recently_written ? 2 * capacity_ : least_offered())) return false;
    if (piece.send_only && !can_write(piece) && piece.size > 8 * capacity_) return false;
    return state_->can_read.load(std::memory_order_relaxed) != 0;
  }

  /// Whether this sender takes part in copying the piece. Not where the receiver reduces: the
  /// reduction keeps it busy, so the sender has to copy into the ring ahead of it.
  [[nodiscard]] bool can_write(const const_bytes& piece) const noexcept {
    return piece.send_only && !piece.receiver_reduces && receiver_ != 0;
  }
  [[nodiscard]] std::size_t least_offered() const noexcept { return capacity_ / 32; }

  /// Whether a small message fits without wrapping around, by the `read` that was last seen.
  [[nodiscard]] bool fits_at_once(std::size_t bytes) const noexcept {
    const auto used = static_cast<std::size_t>(written_ - read_);
    const std::size_t at = written_ & (capacity_ - 1);
    return bytes <= least_offered() && bytes <= capacity_ - used && bytes <= capacity_ - at;
  }
  void put_small(const const_bytes& piece) noexcept {
    std::byte* to = ring_ + (written_ & (capacity_ - 1));
    if (piece.size > 0) std::memcpy(to, piece.data, piece.size);
    written_ += piece.size;
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
  void put_prefix(const const_bytes& prefix) noexcept {
    prefix_.read(prefix.data);
    prefix_.write(ring_ + (written_ & (capacity_ - 1)));
    knows_prefix_ = true;
    written_ += prefix_bytes;
  }
  void write_inline(const const_bytes& body) noexcept {
    state_->inline_mark.store(0, std::memory_order_relaxed);
    state_->inline_number.store(prefix_.of[prefix_words::number], std::memory_order_release);
    for (std::size_t done = 0, i = 0; done < body.size; done += sizeof(std::uint64_t), ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, body.data + done, std::min(sizeof word, body.size - done));
      state_->inline_body[i].store(word, std::memory_order_release);
    }
    state_->inline_mark.store(inline_mark_of(written_, body.size), std::memory_order_release);
    has_inline_ = true;
  }
  /// Marks repeat after many bytes, so an old inline message must not stay valid.
  void withdraw_inline() noexcept {
    if (std::exchange(has_inline_, false)) state_->inline_mark.store(0, std::memory_order_relaxed);
  }
  void publish() noexcept {
    state_->written.store(written_, std::memory_order_release);
    published_ = true;
  }

  void offer(const const_bytes& piece) noexcept {
    bias_ = address_of(piece.data) - offered_;
    state_->bias.store(bias_, std::memory_order_relaxed);
    if (can_write(piece) != writes_) {
      writes_ = !writes_;
      state_->sender_writes.store(writes_ ? 1 : 0, std::memory_order_relaxed);
    }
    offered_ += piece.size;
    state_->offered.store(offered_, std::memory_order_release);
    published_ = true;
  }
  [[nodiscard]] static bool is_open(std::uint32_t request) noexcept {
    return request % pipe_state::request_stages == pipe_state::request_open;
  }
  [[nodiscard]] bool has_open_request() const noexcept {
    return is_open(state_->request.load(std::memory_order_relaxed));
  }
  void serve_request() noexcept {
    // One load and one exchange: a request that is refused in between is not accepted.
    std::uint32_t open = state_->request.load(std::memory_order_relaxed);
    if (!is_open(open)) return;
    const std::uint32_t accepted = open + pipe_state::request_accepted;
    if (!state_->request.compare_exchange_strong(open, accepted, std::memory_order_acquire)) return;
    const auto size =
        static_cast<std::size_t>(state_->request_size.load(std::memory_order_relaxed));
    const std::uint64_t from = bias_ + state_->request_at.load(std::memory_order_relaxed);
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
    published_ = true;
  }
  /// Returns how many offered bytes the receiver has taken since the last call. `rest` are the
  /// bytes that the caller does not know to be sent; if they are more than before, the offer is
  /// extended.
  std::size_t collect(const const_bytes& rest) noexcept {
    const std::uint64_t taken = state_->taken.load(std::memory_order_acquire);
    const auto newly = static_cast<std::size_t>(taken - taken_);
    if (rest.size > offered_ - taken_ && taken < offered_) {
      offered_ = taken_ + rest.size;
      state_->offered.store(offered_, std::memory_order_release);
      published_ = true;
    }
    taken_ = taken;
    return newly;
  }

  pipe_state* state_ = nullptr;
  std::byte* ring_ = nullptr;
  std::size_t capacity_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;  ///< as last seen
  std::uint64_t offered_ = 0;
  std::uint64_t taken_ = 0;  ///< as last reported to the caller
  std::uint64_t bias_ = 0;
  pid_t receiver_ = 0;   ///< 0 where its memory may not be written
  bool writes_ = false;  ///< this end serves write requests for the present offer
  bool published_ = false;
  bool has_inline_ = false;
  bool knows_prefix_ = false;
  prefix_words prefix_;  ///< the last one sent, valid if knows_prefix_
};

class pipe_receiver {
 public:
  pipe_receiver() = default;
  pipe_receiver(pipe_state& state, const std::byte* ring, std::size_t capacity) noexcept
      : state_(&state), ring_(ring), capacity_(capacity) {}

  /// Whether the sender may be waiting for the effect of the last receive(): that its offer is
  /// taken, or that the ring has room. The relaxed load is recent enough: a sender that waits for
  /// room has filled the ring, which takes longer than a store takes to become visible.
  [[nodiscard]] bool awaited() const noexcept {
    return took_ || state_->written.load(std::memory_order_relaxed) - read_before_ >= capacity_ / 2;
  }

  /// Lets the sender offer its memory, and write this rank's memory until `guard` is closed. The
  /// guard must outlive the link.
  void permit_offers(const write_guard& guard) noexcept {
    guard_ = guard.passed();
    state_->can_read.store(1, std::memory_order_relaxed);
  }

  /// Receives as link::try_receive does. `sender` is the process whose memory is read. Throws
  /// link_lost where that process is gone.
  std::size_t receive(mutable_bytes first, mutable_bytes second, pid_t sender, int peer) {
    // The ring's bytes come before the offer. This acquire makes them visible with the offer.
    const std::uint64_t offered = state_->offered.load(std::memory_order_acquire);
    took_ = false;
    read_before_ = read_;
    if (first.size == prefix_bytes && written_ == read_) {
      written_ = state_->written.load(std::memory_order_acquire);
      if (written_ == read_ && offered == taken_) return 0;
      if (const std::size_t got = take_inline(first, second); got > 0) return got;
    }
    if (const std::size_t both = first.size + second.size; is_there_at_once(both)) {
      take_small(first);
      take_small(second);
      if (first.size == prefix_bytes) prefix_.read(first.data);
      state_->read.store(read_, std::memory_order_release);
      return both;
    }
    std::size_t got = get(first);
    if (got == prefix_bytes && first.size == prefix_bytes) prefix_.read(first.data);
    if (got == first.size) got += get(second, got - first.size);
    if (offered == taken_ || read_ != written_) return got;  // get() has taken all it could use
    if (got < first.size) got += take(first, got, offered, sender, peer);
    if (got >= first.size) got += take(second, got - first.size, offered, sender, peer);
    return got;
  }

  /// Whether receive() could do something.
  [[nodiscard]] bool ready() const noexcept {
    if (requested_ > 0) {
      return state_->request.load(std::memory_order_acquire) !=
             request_ + pipe_state::request_accepted;
    }
    return state_->written.load(std::memory_order_acquire) != read_ ||
           state_->offered.load(std::memory_order_acquire) != taken_;
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
  /// Receives the latest message from the cache line that announced it; 0 where the message that
  /// is wanted is not stored there.
  std::size_t take_inline(mutable_bytes prefix, mutable_bytes body) noexcept {
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

  /// Whether all wanted bytes lie in the ring, in one small contiguous piece.
  [[nodiscard]] bool is_there_at_once(std::size_t bytes) noexcept {
    if (bytes > capacity_ / 32 || bytes > capacity_ - (read_ & (capacity_ - 1))) return false;
    if (written_ - read_ < bytes) written_ = state_->written.load(std::memory_order_acquire);
    return written_ - read_ >= bytes;
  }
  void take_small(mutable_bytes to) noexcept {
    if (to.size > 0) std::memcpy(to.data, ring_ + (read_ & (capacity_ - 1)), to.size);
    read_ += to.size;
  }

  /// Bounds of a split copy. A smaller piece is read completely before the sender has seen the
  /// request. Per megabyte the two ends wait for each other once, which costs little.
  static constexpr std::size_t least_split = std::size_t{64} << 10;
  static constexpr std::size_t most_split = std::size_t{1} << 20;
  /// Bytes that one process_vm_readv reads. With a quarter of a megabyte each it is a tenth slower.
  static constexpr std::size_t most_at_once = std::size_t{4} << 20;

  /// Copies out of the ring, at most a quarter of it at a time, so that the sender soon has room.
  std::size_t get(mutable_bytes to, std::size_t skip = 0) noexcept {
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

  std::size_t take(mutable_bytes to, std::size_t skip, std::uint64_t offered, pid_t sender,
                   int peer) {
    if (requested_ > 0) return finish_request(to.data + skip, sender, peer);
    const auto there = static_cast<std::size_t>(offered - taken_);
    const std::size_t room = to.room - std::min(to.room, skip);
    const std::size_t both = std::min({there, most_split, room});
    if (both < least_split || state_->sender_writes.load(std::memory_order_relaxed) == 0) {
      const std::size_t wanted = to.no_dependents ? std::min(room, most_at_once) : 0;
      const std::size_t size = std::min(there, std::max(to.size - skip, wanted));
      read_offered(to.data + skip, size, sender, peer);
      return size;
    }
    const std::size_t page = 4096;  // split at a page boundary, so that no page is pinned twice
    const std::size_t own = both / 2 + page - (address_of(to.data + skip) + both / 2) % page;
    open_request(to.data + skip + own, taken_ + own, both - own);
    read_offered(to.data + skip, own, sender, peer);
    return own + finish_request(to.data + skip + own, sender, peer);
  }
  void read_offered(std::byte* to, std::size_t size, pid_t sender, int peer) {
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
        throw link_lost(peer, "it closed the connection", link_end::closed);
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

  void open_request(const std::byte* to, std::uint64_t at, std::size_t size) noexcept {
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
  /// Counts the requested bytes at `to` as taken if the sender has written them, else reads them; 0
  /// while the sender is still writing.
  std::size_t finish_request(std::byte* to, pid_t sender, int peer) {
    const std::uint32_t found = close_request();
    if (found == request_ + pipe_state::request_accepted) return 0;
    const std::size_t size = std::exchange(requested_, 0);
    if (found == request_ + pipe_state::request_written) count_taken(size);
    else read_offered(to, size, sender, peer);
    return size;
  }

  pipe_state* state_ = nullptr;
  const std::byte* ring_ = nullptr;
  std::size_t capacity_ = 0;
  std::uint64_t written_ = 0;  ///< as last seen
  std::uint64_t read_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t read_before_ = 0;  ///< `read_` before the last receive()
  bool took_ = false;              ///< the last receive() took bytes of an offer
  std::uint32_t request_ = 0;      ///< the number of the last write request
  std::size_t requested_ = 0;      ///< bytes of a request that is not finished
  const write_guard::word* guard_ = nullptr;
  prefix_words prefix_;  ///< the last one received
};

}  // namespace parx::detail
