// shm_link: a link through memory that two processes of one host share.
//
// The connecting side makes the memory and passes it over a Unix connection, which both then keep:
// the kernel ends it with either process, however that dies, and a byte on it wakes a sleeper.
// Nobody pays for a wake-up that nobody sleeps for: each side says in the shared memory when it
// goes to sleep.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include <parx/transport/detail/endpoint.hpp>
#include <parx/transport/detail/process_link.hpp>
#include <parx/transport/detail/shared_memory.hpp>
#include <parx/transport/detail/shared_pipe.hpp>

namespace parx {

class shm_link final : public detail::process_link {
 public:
  /// A link that waits for its peer to connect.
  shm_link(detail::endpoint& shared, const detail::link_key& key, const detail::peer_record& peer)
      : shared_(shared), key_(key), peer_(peer) {}
  /// A link that connects to its peer as rank `from` of the group. Throws link_lost.
  shm_link(detail::endpoint& shared, const detail::link_key& key, int from,
           const detail::peer_record& peer)
      : shared_(shared), key_(key), peer_(peer), from_(from), state_(state::connecting) {
    static_cast<void>(opened());
  }

  std::size_t try_send(const const_bytes& first, const const_bytes& second) override {
    if (!opened()) return 0;
    const std::size_t sent = sender_.send(first, second);
    if (sender_.published()) ring_bell();
    if (sent == 0 && ended_) throw link_lost(key_.peer, "it closed the connection");
    return sent;
  }

  std::size_t try_receive(mutable_bytes first, mutable_bytes second) override {
    if (!opened()) return 0;
    const bool ended = ended_;
    const std::size_t received = receiver_.receive(first, second, pid_, key_.peer);
    if (received > 0 && receiver_.awaited()) ring_bell();
    if (received == 0 && ended) throw link_lost(key_.peer, "it closed the connection");
    return received;
  }

  void nudge() override {
    if (opened()) ring_bell();
  }
  [[nodiscard]] bool has_unread() override {
    if (!opened()) return false;
    const bool ended = ended_;
    if (receiver_.ready()) return true;
    if (ended) throw link_lost(key_.peer, "it closed the connection");
    return false;
  }

  [[nodiscard]] detail::sleep_plan before_sleep(bool /*readable*/, bool /*writable*/,
                                                std::vector<pollfd>& polled) override {
    if (state_ != state::open) return {.awaiting = true};
    mine().asleep.store(1, std::memory_order_seq_cst);
    polled.push_back({socket_.get(), POLLIN, 0});
    return {.looks_twice = true};
  }
  [[nodiscard]] bool ready(bool readable, bool writable) const noexcept override {
    return state_ == state::open &&
           (ended_ || (readable && receiver_.ready()) || (writable && sender_.ready()));
  }
  void after_sleep(short events) override {
    if (state_ != state::open) return;
    mine().asleep.store(0, std::memory_order_relaxed);
    if (events == 0) return;
    char bells[64];
    const auto got = ::recv(socket_.get(), bells, sizeof bells, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) ended_ = true;
  }
  [[nodiscard]] bool open() const noexcept override { return state_ == state::open; }

  void close() noexcept override {
    if (state_ == state::open) {
      sender_.withdraw();
      await_writer();
    }
    socket_.close();
    state_ = state::closed;
  }

 private:
  enum class state { awaiting, connecting, open, closed };

  /// Measured: with single copies a ring of 256 KiB serves 64 KiB to 1 MiB best (a core's cache
  /// holds both rings); without them large messages pass through it as well and want larger pieces.
  static constexpr std::size_t small_ring = std::size_t{256} << 10;
  static constexpr std::size_t large_ring = std::size_t{512} << 10;

  struct side {
    alignas(detail::cache_line) std::atomic<std::uint32_t> asleep{0};
  };
  /// The head of the shared memory; the two rings follow. Index 0 is the connecting side and the
  /// pipe in which it sends.
  struct layout {
    side sides[2];
    detail::pipe_state pipes[2];
    std::uint64_t ring_bytes = 0;
  };
  static constexpr std::size_t rings_at = 4096;
  static_assert(sizeof(layout) <= rings_at);

  [[nodiscard]] layout& shared_layout() noexcept {
    return *std::launder(reinterpret_cast<layout*>(memory_.data()));
  }
  [[nodiscard]] side& mine() noexcept { return shared_layout().sides[connects_ ? 0 : 1]; }
  [[nodiscard]] side& theirs() noexcept { return shared_layout().sides[connects_ ? 1 : 0]; }

  /// No fence between this side's move and its look at the sleeper, though the look may come before
  /// the move is seen: a fence would make every small message wait until it has reached the other
  /// core. It is the sleeper who waits that long (hybrid_transport::wait) and looks again.
  void ring_bell() noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::atomic<std::uint32_t>& asleep = theirs().asleep;
    if (asleep.load(std::memory_order_relaxed) == 0 ||
        asleep.exchange(0, std::memory_order_relaxed) == 0) {
      return;
    }
    const char bell = 1;
    [[maybe_unused]] const auto rung = ::send(socket_.get(), &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  /// The memory that this rank receives into is its own again once this returns: a peer that writes
  /// it at this moment ends that within microseconds. Only one that is stopped in the 100 ns before
  /// is waited for until it is continued or killed.
  void await_writer() noexcept {
    while (!receiver_.reclaim()) {
      char bells[64];
      const auto got = ::recv(socket_.get(), bells, sizeof bells, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
      if (got < 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  [[nodiscard]] bool opened() { return state_ == state::open || opens_now(); }
  [[nodiscard]] bool opens_now() {
    switch (state_) {
      case state::open: return true;
      case state::closed: throw link_lost(key_.peer, "this rank closed the connection");
      case state::awaiting: return take_arrival();
      case state::connecting: return connect();
    }
    return false;
  }

  [[nodiscard]] bool take_arrival() {
    auto arrived = shared_.incoming().claim(key_);
    if (!arrived) return false;
    if (!arrived.memory.valid()) throw link_lost(key_.peer, "it connected without shared memory");
    socket_ = std::move(arrived.socket);
    learn_pid();
    memory_ = detail::shared_memory(arrived.memory, rings_at);
    const std::size_t ring_bytes = shared_layout().ring_bytes;
    if (ring_bytes != small_ring && ring_bytes != large_ring) {
      throw link_lost(key_.peer, "its shared memory is not laid out as this version of parx does");
    }
    memory_ = detail::shared_memory(arrived.memory, rings_at + 2 * ring_bytes);
    finish_opening(shared_.can_read(pid_, peer_));
    return true;
  }

  [[nodiscard]] bool connect() {
    connects_ = true;
    socket_ = detail::endpoint::connect_to_memory(key_.peer, peer_);
    if (!socket_.valid()) return false;
    learn_pid();
    const bool readable = shared_.can_read(pid_, peer_);
    const std::size_t ring_bytes = readable ? small_ring : large_ring;
    const descriptor file = detail::shared_memory::create(rings_at + 2 * ring_bytes);
    memory_ = detail::shared_memory(file, rings_at + 2 * ring_bytes);
    new (memory_.data()) layout;
    shared_layout().ring_bytes = ring_bytes;
    shared_.pass_memory(socket_, file, key_, from_);
    finish_opening(readable);
    return true;
  }

  void learn_pid() noexcept {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) pid_ = peer.pid;
  }

  void finish_opening(bool readable) {
    layout& shared = shared_layout();
    const std::size_t ring_bytes = shared.ring_bytes;
    std::byte* rings = memory_.data() + rings_at;
    const std::size_t out = connects_ ? 0 : 1;
    sender_ = {shared.pipes[out], rings + out * ring_bytes, ring_bytes};
    receiver_ = {shared.pipes[1 - out], rings + (1 - out) * ring_bytes, ring_bytes};
    if (readable) {
      receiver_.permit_offers();
      sender_.permit_writes(pid_);  // the kernel asks for the same right
    }
    state_ = state::open;
  }

  detail::endpoint& shared_;
  detail::link_key key_;
  detail::peer_record peer_;
  int from_ = -1;
  pid_t pid_ = 0;
  bool connects_ = false;
  bool ended_ = false;
  state state_ = state::awaiting;
  descriptor socket_;
  detail::shared_memory memory_;
  detail::pipe_sender sender_;
  detail::pipe_receiver receiver_;
};

}  // namespace parx
