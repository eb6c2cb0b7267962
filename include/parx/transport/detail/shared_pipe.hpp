// shared_pipe: one direction of a link through shared memory, an ordered stream of bytes.
//
// Small pieces go through a ring: one copy in, one out. A large piece is offered instead: the
// sender says where it lies in its own memory, and the receiver copies it from there with
// process_vm_readv, straight to where it is wanted. While an offer is not taken whole, nothing goes
// into the ring, so the order of the stream is kept. An offered piece counts as sent only as far as
// the receiver has taken it. A sender that has nothing else to do takes part in the copying: while
// the receiver reads the first half of what it wants next, the sender writes the second half to
// where it is wanted (pipe_state::share). What a message costs is the cache lines that pass from
// core to core. So the smallest ones, whose prefix is that of the message before with another
// number, lie on the line that announces them as well.
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
#include <parx/transport/transport.hpp>

namespace parx::inline PARX_ABI::detail {

class pipe_sender {
 public:
  pipe_sender() = default;
  /// `capacity` is a power of two.
  pipe_sender(pipe_state& state, std::byte* ring, std::size_t capacity) noexcept
      : state_(&state), ring_(ring), capacity_(capacity) {}

  /// Sends as link::try_send does. A small prefix and its payload are published together: the line
  /// that says so costs as much on its way to the other core as they do.
  std::size_t send(const const_bytes& first, const const_bytes& second) noexcept {
    published_ = false;
    if (taken_ < offered_) {
      if (helps_) write_share();
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

  /// Whether the last send() left something that the receiver may be waiting for.
  [[nodiscard]] bool published() const noexcept { return published_; }

  /// This process may write the memory of the other end's.
  void permit_writes(pid_t receiver) noexcept { receiver_ = receiver; }

  /// The memory that was offered is about to be used for something else.
  void withdraw() noexcept { state_->withdrawn.store(1, std::memory_order_seq_cst); }

  /// Whether send() could do something.
  [[nodiscard]] bool ready() const noexcept {
    if (taken_ < offered_) {
      return state_->taken.load(std::memory_order_acquire) != taken_ ||
             (helps_ && has_open_share());
    }
    return written_ - state_->read.load(std::memory_order_acquire) < capacity_;
  }

 private:
  /// Measured at two ranks. What the sender has just written is cheaper to copy twice up to half a
  /// megabyte, because fetching it from another core's cache is what costs. Other pieces are read
  /// where they lie from 8 KiB on: of 16 KiB that costs as much as copying once more, and half as
  /// much where both ranks send. What travels one way only goes faster through the ring from two
  /// megabytes on, because both cores copy, unless both do so without it.
  [[nodiscard]] bool should_offer(const const_bytes& piece) const noexcept {
    if (piece.size <= (piece.fresh ? 2 * capacity_ : least_offered())) return false;
    if (piece.at_ease && !can_help(piece) && piece.size > 8 * capacity_) return false;
    return state_->can_take.load(std::memory_order_relaxed) != 0;
  }

  /// A receiver that reduces is kept busy by that: it needs the sender to copy ahead of it.
  [[nodiscard]] bool can_help(const const_bytes& piece) const noexcept {
    return piece.at_ease && !piece.reduced && receiver_ != 0;
  }
  [[nodiscard]] std::size_t least_offered() const noexcept { return capacity_ / 32; }

  /// Whether a small message finds room, in one piece and as far as was last seen.
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

  /// In pieces, so that the receiver copies one while the next is written. Publishes all but the
  /// last.
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
  /// A number may come again after many bytes, but not with an inline message of old.
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
    if (can_help(piece) != helps_) {
      helps_ = !helps_;
      state_->helps.store(helps_ ? 1 : 0, std::memory_order_relaxed);
    }
    offered_ += piece.size;
    state_->offered.store(offered_, std::memory_order_release);
    published_ = true;
  }
  [[nodiscard]] static bool is_open(std::uint32_t share) noexcept {
    return share % pipe_state::share_stages == pipe_state::share_open;
  }
  [[nodiscard]] bool has_open_share() const noexcept {
    return is_open(state_->share.load(std::memory_order_relaxed));
  }
  void write_share() noexcept {
    // Looked at once: what is refused meanwhile is not taken.
    std::uint32_t open = state_->share.load(std::memory_order_relaxed);
    if (!is_open(open)) return;
    const std::uint32_t taken = open + pipe_state::share_taken;
    if (!state_->share.compare_exchange_strong(open, taken, std::memory_order_acquire)) return;
    const auto size = static_cast<std::size_t>(state_->share_size.load(std::memory_order_relaxed));
    const std::uint64_t from = bias_ + state_->share_at.load(std::memory_order_relaxed);
    const std::uint64_t to = state_->share_to.load(std::memory_order_relaxed);
    const std::uint64_t landed_at = state_->landed_at.load(std::memory_order_relaxed);
    const std::uint64_t guard_at = state_->guard_at.load(std::memory_order_relaxed);
    const iovec number{&open, sizeof open};
    const iovec here[] = {number, memory_at(from, size), number};
    const iovec there[] = {memory_at(guard_at, sizeof open), memory_at(to, size),
                           memory_at(landed_at, sizeof open)};
    const bool written = ::process_vm_writev(receiver_, here, 3, there, 3, 0) >=
                         static_cast<ssize_t>(sizeof open + size);
    const std::uint32_t end = written ? pipe_state::share_written : pipe_state::share_refused;
    state_->share.store(taken - pipe_state::share_taken + end, std::memory_order_release);
    published_ = true;
  }
  /// What was taken of the offer, of which `rest` is what its sender has not seen leave yet; a
  /// longer rest than before extends the offer.
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
  std::uint64_t taken_ = 0;  ///< as last told to the caller
  std::uint64_t bias_ = 0;
  pid_t receiver_ = 0;  ///< 0 where its memory may not be written
  bool helps_ = false;  ///< with what is offered
  bool published_ = false;
  bool has_inline_ = false;
  bool knows_prefix_ = false;
  prefix_words prefix_;  ///< the last one sent, if it went in one piece
};

class pipe_receiver {
 public:
  pipe_receiver() = default;
  pipe_receiver(pipe_state& state, const std::byte* ring, std::size_t capacity) noexcept
      : state_(&state), ring_(ring), capacity_(capacity) {}

  /// Whether the sender may be waiting for what the last receive() has done: for its offer to be
  /// taken, or for room. A sender that waits for room has filled the ring since, which takes
  /// longer than a store needs to be seen.
  [[nodiscard]] bool awaited() const noexcept {
    return took_ || state_->written.load(std::memory_order_relaxed) - read_before_ >= capacity_ / 2;
  }

  /// The sender may write this rank's memory as long as `guard`, which must outlive the link, is
  /// not closed.
  void permit_offers(const write_guard& guard) noexcept {
    guard_ = guard.passed();
    state_->can_take.store(1, std::memory_order_relaxed);
  }

  /// Receives as link::try_receive does. `sender` is the process whose memory is read. Throws
  /// link_lost where that process is gone.
  std::size_t receive(mutable_bytes first, mutable_bytes second, pid_t sender, int peer) {
    // What is in the ring came before what is offered, and is seen by whoever sees the offer.
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
    if (shared_ > 0) {
      return state_->share.load(std::memory_order_acquire) != share_ + pipe_state::share_taken;
    }
    return state_->written.load(std::memory_order_acquire) != read_ ||
           state_->offered.load(std::memory_order_acquire) != taken_;
  }

  /// Takes back what the sender was asked to write, if it has not begun. False while it writes: the
  /// memory that receive() was given must then stay what it is.
  [[nodiscard]] bool reclaim() noexcept {
    return end_asking() != share_ + pipe_state::share_taken ||
           state_->landed.load(std::memory_order_acquire) == share_;
  }
  /// Whether the sender has begun to write the last share, which it then does in the kernel.
  [[nodiscard]] bool write_has_begun() const noexcept {
    return guard_->load(std::memory_order_acquire) == share_;
  }

 private:
  /// The message that the sender has just announced, off the line that did so. 0 where not all is
  /// there.
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
    // Being written anew?
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

  /// Whether all that is asked for lies in the ring, in one small piece.
  [[nodiscard]] bool is_there_at_once(std::size_t bytes) noexcept {
    if (bytes > capacity_ / 32 || bytes > capacity_ - (read_ & (capacity_ - 1))) return false;
    if (written_ - read_ < bytes) written_ = state_->written.load(std::memory_order_acquire);
    return written_ - read_ >= bytes;
  }
  void take_small(mutable_bytes to) noexcept {
    if (to.size > 0) std::memcpy(to.data, ring_ + (read_ & (capacity_ - 1)), to.size);
    read_ += to.size;
  }

  /// Less than that is read before the sender has seen that it could help. Where both wait for each
  /// other once in a megabyte, that does not count.
  static constexpr std::size_t least_shared = std::size_t{64} << 10;
  static constexpr std::size_t most_shared = std::size_t{1} << 20;
  /// What the kernel looks up at one time. A call for each quarter of a megabyte is a tenth slower.
  static constexpr std::size_t most_at_once = std::size_t{4} << 20;

  /// A quarter of the ring at a time: what has been read makes room at once.
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
    if (shared_ > 0) return end_share(to.data + skip, sender, peer);
    const auto there = static_cast<std::size_t>(offered - taken_);
    const std::size_t room = to.room - std::min(to.room, skip);
    const std::size_t both = std::min({there, most_shared, room});
    if (both < least_shared || state_->helps.load(std::memory_order_relaxed) == 0) {
      const std::size_t wanted = to.at_ease ? std::min(room, most_at_once) : 0;
      const std::size_t size = std::min(there, std::max(to.size - skip, wanted));
      read_offered(to.data + skip, size, sender, peer);
      return size;
    }
    const std::size_t page = 4096;  // one that both copied to would be looked up twice
    const std::size_t own = both / 2 + page - (address_of(to.data + skip) + both / 2) % page;
    open_share(to.data + skip + own, taken_ + own, both - own);
    read_offered(to.data + skip, own, sender, peer);
    return own + end_share(to.data + skip + own, sender, peer);
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
      // Looked at after the copy: what was copied before the sender closed is what it offered.
      std::atomic_thread_fence(std::memory_order_acquire);
      if (state_->withdrawn.load(std::memory_order_relaxed) != 0) {
        throw link_lost(peer, "it closed the connection");
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

  void open_share(const std::byte* to, std::uint64_t at, std::size_t size) noexcept {
    shared_ = size;
    share_ += pipe_state::share_stages;
    state_->share_at.store(at, std::memory_order_relaxed);
    state_->share_size.store(size, std::memory_order_relaxed);
    state_->share_to.store(address_of(to), std::memory_order_relaxed);
    state_->landed_at.store(address_of(&state_->landed), std::memory_order_relaxed);
    state_->guard_at.store(address_of(guard_), std::memory_order_relaxed);
    state_->share.store(share_, std::memory_order_release);
  }
  /// The stage of the share, which is refused from here on where it was still open.
  std::uint32_t end_asking() noexcept {
    std::uint32_t stage = share_;
    state_->share.compare_exchange_strong(stage, share_ + pipe_state::share_refused,
                                          std::memory_order_acquire);
    return stage;
  }
  /// Counts the share that lies at `to` as taken, or reads it where the sender has not begun; 0
  /// while the sender writes it.
  std::size_t end_share(std::byte* to, pid_t sender, int peer) {
    const std::uint32_t stage = end_asking();
    if (stage == share_ + pipe_state::share_taken) return 0;
    const std::size_t size = std::exchange(shared_, 0);
    if (stage == share_ + pipe_state::share_written) count_taken(size);
    else read_offered(to, size, sender, peer);
    return size;
  }

  pipe_state* state_ = nullptr;
  const std::byte* ring_ = nullptr;
  std::size_t capacity_ = 0;
  std::uint64_t written_ = 0;  ///< as last seen
  std::uint64_t read_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t read_before_ = 0;  ///< the last receive()
  bool took_ = false;              ///< of an offer, in the last receive()
  std::uint32_t share_ = 0;        ///< the number of the last share
  std::size_t shared_ = 0;         ///< bytes of a share that has not ended
  const write_guard::word* guard_ = nullptr;
  prefix_words prefix_;            ///< the last one received
};

}  // namespace parx::detail
