// shared_pipe: one direction of a link through shared memory, an ordered stream of bytes.
//
//                  small                                       the ring has it
//   send() --------------------------> ring (two copies) ----------------------------+
//      |  large                                                                      +--> receive()
//      +-----------> offer (one copy by the receiver, or split between both ends) ---+
//
// Nothing goes into the ring until the offer is taken completely, which keeps the stream in order:
// the receiver empties the ring, then takes the offer.
// Threads: one sender and one receiver, in two processes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <parx/transport/detail/offer.hpp>
#include <parx/transport/detail/pipe_state.hpp>
#include <parx/transport/detail/ring.hpp>
#include <parx/transport/detail/split_copy.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class pipe_sender {
 public:
  pipe_sender() = default;
  /// `capacity` is a power of two.
  pipe_sender(pipe_state& state, std::byte* ring, std::size_t capacity) noexcept
      : state_(&state), ring_(state, ring, capacity), offers_(state), split_(state) {}

  /// Sends as link::try_send does.
  std::size_t send(const const_bytes& first, const const_bytes& second) noexcept {
    published_ = false;
    if (offers_.is_open()) {
      if (split_.serves() && split_.serve(offers_.bias())) published_ = true;
      return offers_.collect(second, published_);
    }
    if (ring_.put_whole(first, second)) {
      published_ = true;
      return first.size + second.size;
    }
    std::size_t sent = ring_.put_header(first);
    const bool offers = sent == first.size && second.size > 0 && should_offer(second);
    if (sent == first.size && !offers) sent += ring_.put(second);
    if (sent > 0) ring_.publish();
    if (offers) {
      split_.set_serving(can_write(second));
      offers_.offer(second);
    }
    published_ = sent > 0 || offers;
    return sent;
  }

  /// Whether the last send() published something that the receiver may be waiting for.
  [[nodiscard]] bool published() const noexcept { return published_; }
  /// Whether the receiver has not taken all offered bytes, as far as send() knows.
  [[nodiscard]] bool has_offer() const noexcept { return offers_.is_open(); }
  /// Lets this end write the memory of the receiving process.
  void permit_writes(pid_t receiver) noexcept { split_.permit(receiver); }
  /// Invalidates all offers, before the offered memory is used for something else.
  void withdraw() noexcept { offers_.withdraw(); }

  /// Whether send() could do something.
  [[nodiscard]] bool ready() const noexcept {
    if (!offers_.is_open()) return ring_.has_room();
    return offers_.has_news() || (split_.serves() && split_.has_open_request());
  }

 private:
  /// Measured with two ranks. Bytes that the sender has just written are cheaper to copy twice up
  /// to half a megabyte, because reading them from another core's cache is slow. Other pieces are
  /// offered from 8 KiB on: at 16 KiB one system call costs as much as the second copy, and half as
  /// much where both ranks send. Traffic in one direction only is faster through the ring from two
  /// megabytes on, because there both cores copy, unless a split copy does the same.
  [[nodiscard]] bool should_offer(const const_bytes& piece) const noexcept {
    const std::size_t copied = piece.recently_written ? 2 * ring_.capacity() : ring_.most_whole();
    if (piece.size <= copied) return false;
    if (piece.send_only && !can_write(piece) && piece.size > 8 * ring_.capacity()) return false;
    return state_->can_read.load(std::memory_order_relaxed) != 0;
  }

  /// Whether this sender takes part in copying the piece. Not where the receiver reduces: the
  /// reduction keeps it busy, so the sender has to copy into the ring ahead of it.
  [[nodiscard]] bool can_write(const const_bytes& piece) const noexcept {
    return piece.send_only && !piece.receiver_reduces && split_.is_permitted();
  }

  pipe_state* state_ = nullptr;
  ring_writer ring_;
  offer_maker offers_;
  split_writer split_;
  bool published_ = false;
};

class pipe_receiver {
 public:
  pipe_receiver() = default;
  pipe_receiver(pipe_state& state, const std::byte* ring, std::size_t capacity) noexcept
      : state_(&state), ring_(state, ring, capacity), offers_(state), split_(state) {}

  /// Whether the sender may be waiting for the effect of the last receive(): that its offer is
  /// taken, or that the ring has room.
  [[nodiscard]] bool awaited() const noexcept { return offers_.took() || ring_.awaited(); }

  /// Lets the sender offer its memory, and write this rank's memory until `guard` is closed. The
  /// guard must outlive the link.
  void permit_offers(const write_guard& guard) noexcept {
    split_.permit(guard);
    state_->can_read.store(1, std::memory_order_relaxed);
  }

  /// Receives as link::try_receive does. `sender` is the process whose memory is read. Throws
  /// link_lost where that process is gone.
  std::size_t receive(const mutable_bytes& first, const mutable_bytes& second, pid_t sender,
                      int peer) {
    // The ring's bytes come before the offer. This acquire makes them visible with the offer.
    const std::uint64_t offered = offers_.offered();
    offers_.begin_receive();
    ring_.begin_receive();
    if (first.size == prefix_bytes && ring_.is_empty()) {
      ring_.look();
      if (ring_.is_empty() && offered == offers_.taken()) return 0;
      if (const std::size_t got = ring_.take_inline(first, second); got > 0) return got;
    }
    if (ring_.take_whole(first, second)) return first.size + second.size;
    std::size_t got = ring_.get_header(first);
    if (got == first.size) got += ring_.get(second, got - first.size);
    // Of the ring, all that could be used is taken.
    if (offered == offers_.taken() || !ring_.is_empty()) return got;
    if (got < first.size) got += take(first, got, offered, sender, peer);
    if (got >= first.size) got += take(second, got - first.size, offered, sender, peer);
    return got;
  }

  /// Whether receive() could do something.
  [[nodiscard]] bool ready() const noexcept {
    if (split_.is_open()) return split_.ready();
    return ring_.has_unseen() || offers_.offered() != offers_.taken();
  }

  /// See split_reader.
  [[nodiscard]] bool reclaim() noexcept { return split_.reclaim(); }
  [[nodiscard]] bool write_has_begun() const noexcept { return split_.write_has_begun(); }

 private:
  /// Bytes that one process_vm_readv reads. 256 KiB was measured 10 % slower.
  static constexpr std::size_t most_at_once = std::size_t{4} << 20;

  std::size_t take(const mutable_bytes& to, std::size_t skip, std::uint64_t offered, pid_t sender,
                   int peer) {
    if (split_.is_open()) return split_.finish(to.data + skip, offers_, sender, peer);
    const auto there = static_cast<std::size_t>(offered - offers_.taken());
    const std::size_t room = to.room - std::min(to.room, skip);
    if (const auto got = split_.take(to.data + skip, std::min(there, room), offers_, sender, peer);
        got > 0) {
      return got;
    }
    const std::size_t wanted = to.no_dependents ? std::min(room, most_at_once) : 0;
    const std::size_t size = std::min(there, std::max(to.size - skip, wanted));
    offers_.read(to.data + skip, size, sender, peer);
    return size;
  }

  pipe_state* state_ = nullptr;
  ring_reader ring_;
  offer_taker offers_;
  split_reader split_;
};

}  // namespace parx::detail
