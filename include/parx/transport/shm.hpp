// shm_link: a link through memory that two processes of one host share.
//
// The connecting side creates the memory and passes it on; then neither keeps a descriptor of it.
// The two processes' wake_channel wakes a sleeping peer and tells when the peer's process ends.
// Each side sets a flag in the shared memory before it sleeps, so that no wake-up is sent to a peer
// that is awake, and another one when it closes the link.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/descriptor.hpp>
#include <parx/transport/detail/endpoint.hpp>
#include <parx/transport/detail/link_memory.hpp>
#include <parx/transport/detail/process_link.hpp>
#include <parx/transport/detail/shared_memory.hpp>
#include <parx/transport/detail/shared_pipe.hpp>
#include <parx/transport/detail/wake_channel.hpp>
#include <parx/transport/detail/write_guard.hpp>

namespace parx::inline PARX_ABI {

class shm_link final : public detail::process_link {
 public:
  /// A link of rank `from` of the group to the peer that is `rank` in the job. Throws link_lost.
  [[gnu::cold]] shm_link(detail::endpoint& shared, const detail::link_key& key, int from, int rank,
                         const detail::peer_record& peer)
      : shared_(shared), key_(key), peer_(peer), from_(from), rank_(rank) {
    if (connects_) static_cast<void>(opened());
  }

  std::size_t try_send(const const_bytes& first, const const_bytes& second) override {
    if (!opened()) return 0;
    // Before the send: bytes that are sent before the peer ends may still be received, but not
    // those that are put into the ring after that.
    const bool ended = has_ended();
    if (ended && !sender_.has_offer()) throw closed_by(key_.peer);
    const std::size_t sent = sender_.send(first, second);
    if (sender_.published()) wake_peer();
    if (sent == 0 && ended) throw closed_by(key_.peer);
    return sent;
  }

  std::size_t try_receive(const mutable_bytes& first, const mutable_bytes& second) override {
    if (!opened()) return 0;
    const bool ended = ended_;
    const std::size_t received = receiver_.receive(first, second, wakes_->pid(), key_.peer);
    if (received > 0 && receiver_.awaited()) wake_peer();
    if (received == 0 && ended) throw closed_by(key_.peer);
    return received;
  }

  void nudge() override {
    if (opened()) wake_peer();
  }
  [[nodiscard]] bool has_unread() override {
    if (!opened()) return false;
    const bool ended = ended_;
    if (receiver_.ready()) return true;
    if (ended) throw closed_by(key_.peer);
    return false;
  }

  [[nodiscard]] detail::sleep_plan before_sleep(bool /*readable*/, bool /*writable*/,
                                                std::vector<pollfd>& polled) override {
    if (state_ != state::open) return {.awaiting = true};
    mine().asleep.store(1, std::memory_order_seq_cst);
    polled.push_back({wakes_->descriptor(), POLLIN, 0});
    return {.looks_twice = true};
  }
  [[nodiscard]] bool ready(bool readable, bool writable) const noexcept override {
    return state_ == state::open &&
           (has_ended() || (readable && receiver_.ready()) || (writable && sender_.ready()));
  }
  void after_sleep(short events) override {
    if (state_ != state::open) return;
    mine().asleep.store(0, std::memory_order_relaxed);
    if (events != 0) receive_wakes();
    ended_ = has_ended();
    if (wakes_->ended()) shared_.job()->report_ended(rank_);
  }

  void close() noexcept override {
    if (state_ == state::open) {
      sender_.withdraw();
      await_writer();
      mine().closed.store(1, std::memory_order_seq_cst);
      if (theirs().asleep.load(std::memory_order_seq_cst) != 0) wakes_->wake(key_.group);
    }
    state_ = state::closed;
  }

 private:
  using layout = detail::link_memory;
  enum class state { opening, open, closed };

  [[nodiscard]] layout& shared_layout() const noexcept { return layout::at(memory_.data()); }
  [[nodiscard]] layout::side& mine() const noexcept {
    return shared_layout().sides[connects_ ? 0 : 1];
  }
  [[nodiscard]] layout::side& theirs() const noexcept {
    return shared_layout().sides[connects_ ? 1 : 0];
  }

  /// There is no fence between the store that publishes bytes and the load of `asleep`, though the
  /// load may be executed before the store is visible: a fence would delay every small message
  /// until it has reached the other core. Instead the sleeper, after setting `asleep`, waits that
  /// long and checks again (hybrid_links::can_move_after_all).
  void wake_peer() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::atomic<std::uint32_t>& asleep = theirs().asleep;
    if (asleep.load(std::memory_order_relaxed) == 0 ||
        asleep.exchange(0, std::memory_order_relaxed) == 0) {
      return;
    }
    wakes_->wake(key_.group);
  }
  void receive_wakes() noexcept {
    wakes_->receive([this](std::uint64_t group) {
      if (group != key_.group) shared_.sleeping_groups().wake(group);
    });
  }
  /// Whether the peer has closed the link or ended. What it sent before can still be received.
  [[nodiscard]] bool has_ended() const noexcept {
    return wakes_->ended() || theirs().closed.load(std::memory_order_acquire) != 0;
  }

  /// Waits until the peer no longer writes into this rank's memory. A write that is under way ends
  /// within microseconds. A peer that is stopped just before its write loses the permission to it.
  /// A write that has begun cannot be revoked. The kernel does not stop a process inside the copy,
  /// so one that has still not said how it ended has failed, and its process was stopped then.
  void await_writer() noexcept {
    static constexpr std::chrono::milliseconds patience{200}, longest{800};
    const auto began = std::chrono::steady_clock::now();
    while (!receiver_.reclaim() && !wakes_->ended()) {
      const auto waited = std::chrono::steady_clock::now() - began;
      if (waited > longest) return;
      if (waited > patience && !guard_.closed()) guard_.close();
      // The second interval is for a write that passed the guard just before it was closed.
      if (guard_.closed() && waited > 2 * patience && !receiver_.write_has_begun()) return;
      receive_wakes();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  [[nodiscard]] bool opened() { return state_ == state::open || opens_now(); }
  [[nodiscard]] bool opens_now() {
    if (state_ == state::closed) throw link_lost(key_.peer, "this rank closed the connection");
    if (wakes_ == nullptr) wakes_ = shared_.wake_channel_with(rank_, key_.peer, peer_);
    if (wakes_ == nullptr) return false;
    return connects_ ? connect() : take_arrival();
  }

  [[nodiscard]] bool take_arrival() {
    receive_wakes();  // no thread may be polling for a link that is not open
    const bool ended = wakes_->ended();
    auto arrived = shared_.incoming().claim(key_);
    if (!arrived && ended) throw closed_by(key_.peer);
    if (!arrived) return false;
    memory_ = std::move(arrived.memory);
    if (memory_.data() == nullptr) {
      throw link_lost(key_.peer, "it connected without shared memory");
    }
    const bool whole = memory_.size() >= layout::rings_at;
    const std::size_t ring_bytes = whole ? shared_layout().ring_bytes : 0;
    if ((ring_bytes != layout::small_ring && ring_bytes != layout::large_ring) ||
        memory_.size() != layout::bytes_for(ring_bytes)) {
      throw link_lost(key_.peer, "its shared memory has the layout of another version of parx");
    }
    finish_opening(shared_.can_read(wakes_->pid(), peer_));
    return true;
  }

  [[nodiscard, gnu::cold]] bool connect() {
    const descriptor socket = shared_.connect_to_memory(key_.peer, peer_);
    if (!socket.valid()) return false;
    const bool readable = shared_.can_read(wakes_->pid(), peer_);
    const std::size_t ring_bytes = readable ? layout::small_ring : layout::large_ring;
    const descriptor file = detail::shared_memory::create(layout::bytes_for(ring_bytes));
    memory_ = detail::shared_memory(file, layout::bytes_for(ring_bytes));
    new (memory_.data()) layout;
    shared_layout().ring_bytes = ring_bytes;
    shared_.pass_memory(socket, file, key_, from_, peer_);
    finish_opening(readable);
    return true;
  }

  [[gnu::cold]] void finish_opening(bool readable) {
    layout& shared = shared_layout();
    const std::size_t ring_bytes = shared.ring_bytes;
    std::byte* rings = memory_.data() + layout::rings_at;
    const std::size_t out = connects_ ? 0 : 1;
    sender_ = {shared.pipes[out], rings + out * ring_bytes, ring_bytes};
    receiver_ = {shared.pipes[1 - out], rings + (1 - out) * ring_bytes, ring_bytes};
    if (readable) {
      guard_ = detail::write_guard::create();
      receiver_.permit_offers(guard_);
      sender_.permit_writes(wakes_->pid());  // needs the same permission as reading
    }
    state_ = state::open;
  }

  detail::endpoint& shared_;
  detail::link_key key_;
  detail::peer_record peer_;
  int from_;
  int rank_;
  const bool connects_ = shared_.connects_to(rank_);
  bool ended_ = false;
  state state_ = state::opening;
  detail::wake_channel* wakes_ = nullptr;  ///< once it is open; owned by the endpoint
  detail::shared_memory memory_;
  detail::write_guard guard_;
  detail::pipe_sender sender_;
  detail::pipe_receiver receiver_;
};

}  // namespace parx
