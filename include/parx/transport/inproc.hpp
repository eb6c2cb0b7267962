// inproc: links for ranks that are threads of one process; also for a world of one rank.
//
// For tests, teaching and sandboxes without sockets. The job's store is in memory. Each pair of
// ranks has two bounded pipes per channel. A network can have a delay (each byte becomes visible
// that much later), and any rank can be killed: its peers then lose their links as they would over
// TCP. Threads: an inproc_network is safe from any thread; each links object belongs to its rank's
// thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/store/hash.hpp>
#include <parx/transport/job.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI {

struct inproc_options {
  std::chrono::microseconds delay{0};  ///< how much later a byte arrives than it was sent
};

namespace detail {

/// Counts the events that a rank may be waiting for.
class inproc_events {
 public:
  void add() {
    {
      const std::lock_guard lock(mutex_);
      ++count_;
    }
    changed_.notify_all();
  }
  /// Waits until more than `seen` events have happened or `until` has passed; returns their count.
  [[nodiscard]] std::uint64_t wait_beyond(std::uint64_t seen,
                                          std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, [&] { return count_ > seen; });
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t count_ = 0;
};

/// One direction between two ranks.
class inproc_pipe {
 public:
  using clock = std::chrono::steady_clock;

  std::size_t write(const_bytes from, clock::time_point visible) {
    const std::lock_guard lock(mutex_);
    const std::size_t fits = std::min(from.size, bytes_.size() - (written_ - read_));
    for_each_piece(written_, fits, [&](std::byte* at, std::size_t moved, std::size_t size) {
      std::memcpy(at, from.data + moved, size);
    });
    written_ += fits;
    if (fits > 0) incoming_.emplace_back(visible, written_);
    return fits;
  }

  std::size_t read(const mutable_bytes& to) {
    const std::lock_guard lock(mutex_);
    const auto now = clock::now();
    while (!incoming_.empty() && incoming_.front().first <= now) {
      visible_ = incoming_.front().second;
      incoming_.pop_front();
    }
    const std::size_t got = std::min(to.size, visible_ - read_);
    for_each_piece(read_, got, [&](const std::byte* at, std::size_t moved, std::size_t size) {
      std::memcpy(to.data + moved, at, size);
    });
    read_ += got;
    return got;
  }

  /// When the next byte becomes visible; time_point::max() when none is pending.
  [[nodiscard]] clock::time_point next_arrival() {
    const std::lock_guard lock(mutex_);
    return incoming_.empty() ? clock::time_point::max() : incoming_.front().first;
  }
  [[nodiscard]] bool drained() {
    const std::lock_guard lock(mutex_);
    return written_ == read_;
  }

  std::atomic<bool> closed{false};

 private:
  /// Calls copy(place in the buffer, bytes before it, size): twice where the bytes wrap around.
  template <typename Copy>
  void for_each_piece(std::size_t from, std::size_t size, Copy copy) {
    for (std::size_t moved = 0; moved < size;) {
      const std::size_t at = (from + moved) % bytes_.size();
      const std::size_t piece = std::min(size - moved, bytes_.size() - at);
      copy(bytes_.data() + at, moved, piece);
      moved += piece;
    }
  }

  std::mutex mutex_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(std::size_t{256} << 10);
  std::size_t written_ = 0;
  std::size_t visible_ = 0;
  std::size_t read_ = 0;
  std::deque<std::pair<clock::time_point, std::size_t>> incoming_;
};

}  // namespace detail

class inproc_network : public std::enable_shared_from_this<inproc_network> {
 public:
  [[gnu::cold]] explicit inproc_network(int size, inproc_options options = {})
      : options_(options), ranks_(static_cast<std::size_t>(std::max(size, 0))) {
    require(size >= 1, "an inproc_network needs at least one rank, not {}", size);
  }

  /// The links of one rank to all others. The network must be held by a shared_ptr.
  [[nodiscard]] std::unique_ptr<links> attach(int rank);

  /// Simulates that the rank's process is killed: its peers lose their links to it.
  void kill(int rank) {
    {
      const std::lock_guard lock(mutex_);
      at(rank).ended = true;
    }
    notify_all();
  }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }

 private:
  friend class inproc_links;
  friend class inproc_link;
  struct rank_state {
    bool ended = false;
    detail::inproc_events events;
  };
  struct pipe_key {
    std::uint64_t group;
    channel traffic;
    int from, to;
    auto operator<=>(const pipe_key&) const = default;
  };

  /// Created on first use; valid as long as the network.
  [[nodiscard]] detail::inproc_pipe& pipe(const pipe_key& key) {
    const std::lock_guard lock(mutex_);
    return pipes_[key];
  }
  /// The shared area of a group, created by its first rank. The last rank removes it from areas_.
  [[nodiscard, gnu::cold]] shared_area share(const std::pair<std::uint64_t, std::uint64_t>& key,
                                             std::size_t ranks, std::size_t bytes) {
    static constexpr std::size_t line = 64;
    const std::size_t part = (bytes + line - 1) / line * line;
    const std::lock_guard lock(mutex_);
    auto& [area, takers] = areas_[key];
    if (takers++ == 0) {
      const auto memory = std::make_shared<std::vector<std::byte>>(part * ranks + line);
      void* start = memory->data();
      std::size_t room = memory->size();
      std::align(line, part * ranks, start, room);
      area = {{}, bytes, key.second, memory};
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        area.of_rank.push_back(static_cast<std::byte*>(start) + rank * part);
      }
    }
    if (area.bytes != bytes) {
      throw_error(errc::mismatch,
                  "one rank shares {} bytes, another {}: all ranks must ask for the same size",
                  bytes, area.bytes);
    }
    const shared_area mine = area;
    if (takers == ranks) areas_.erase(key);
    return mine;
  }
  [[nodiscard]] bool alive(int rank) {
    const std::lock_guard lock(mutex_);
    return !at(rank).ended;
  }
  /// Whether the rank has ended and `observer` has read all that it sent. A call may read a peer's
  /// bytes long after they have come, because it needs another peer's first.
  [[nodiscard]] bool has_ended(int rank, int observer) {
    const std::lock_guard lock(mutex_);
    return at(rank).ended && std::none_of(pipes_.begin(), pipes_.end(), [&](auto& each) {
      return each.first.from == rank && each.first.to == observer && !each.second.drained();
    });
  }
  [[nodiscard]] detail::inproc_events& events(int rank) { return at(rank).events; }
  void notify_all() {
    for (rank_state& each : ranks_) each.events.add();
  }
  [[nodiscard]] rank_state& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  inproc_options options_;
  std::mutex mutex_;
  std::vector<rank_state> ranks_;
  std::map<pipe_key, detail::inproc_pipe> pipes_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::pair<shared_area, std::size_t>> areas_;
  std::shared_ptr<store> store_ = std::make_shared<hash_store>();
};

class inproc_link final : public link {
 public:
  inproc_link(inproc_network& network, int peer, int peer_in_network, detail::inproc_pipe& out,
              detail::inproc_pipe& in)
      : network_(network), peer_(peer), peer_in_network_(peer_in_network), out_(out), in_(in) {}

  std::size_t try_send(const const_bytes& first, const const_bytes& second) override {
    if (!network_.alive(peer_in_network_)) throw link_lost(peer_, "its thread was killed");
    if (in_.closed && in_.drained()) throw closed_by(peer_);
    const auto visible = std::chrono::steady_clock::now() + network_.options_.delay;
    std::size_t sent = out_.write(first, visible);
    if (sent == first.size) sent += out_.write(second, visible);
    if (sent > 0) network_.events(peer_in_network_).add();
    return sent;
  }

  std::size_t try_receive(const mutable_bytes& first, const mutable_bytes& second) override {
    std::size_t received = in_.read(first);
    if (received == first.size) received += in_.read(second);
    if (received > 0) network_.events(peer_in_network_).add();  // there is room again
    else static_cast<void>(has_unread());                       // throws where the peer has ended
    return received;
  }

  void nudge() override { network_.events(peer_in_network_).add(); }
  [[nodiscard]] bool has_unread() override {
    const bool alive = network_.alive(peer_in_network_);
    const bool closed = in_.closed;
    if (!in_.drained()) return true;
    if (!alive) throw link_lost(peer_, "its thread has ended", link_end::closed);
    if (closed) throw closed_by(peer_);
    return false;
  }

  [[nodiscard]] std::chrono::steady_clock::time_point next_arrival() { return in_.next_arrival(); }
  void close() { out_.closed = true; }

 private:
  inproc_network& network_;
  int peer_;
  int peer_in_network_;
  detail::inproc_pipe& out_;
  detail::inproc_pipe& in_;
};

class inproc_links final : public links {
 public:
  inproc_links(std::shared_ptr<inproc_network> network, std::shared_ptr<parx::job> of,
               std::vector<int> members, int rank, std::uint64_t id)
      : links(std::move(of), std::move(members), rank, id), network_(std::move(network)) {}
  [[gnu::cold]] ~inproc_links() override {
    close();
    // Group 0, all ranks of the job, is destroyed last: the rank has ended.
    if (group() != 0) return;
    if (network_->alive(self())) job().publish_exit();
    network_->kill(self());
  }

  link& link_to(int peer, channel traffic, std::chrono::milliseconds) override {
    const std::pair key(peer, traffic);
    if (const auto known = links_.find(key); known != links_.end()) return known->second;
    const int here = self();
    const int there = job_rank(peer);
    return links_
        .try_emplace(key, *network_, peer, there, network_->pipe({group(), traffic, here, there}),
                     network_->pipe({group(), traffic, there, here}))
        .first->second;
  }

  void for_each_link(channel traffic, const std::function<void(int, link&)>& visit) override {
    for (auto& [key, opened] : links_) {
      if (key.second == traffic) visit(key.first, opened);
    }
  }

  void wait(const std::vector<link_interest>& interests, std::chrono::milliseconds limit) override {
    auto until = std::chrono::steady_clock::now() + limit;
    for (const link_interest& each : interests) {
      if (!each.readable) continue;
      until = std::min(until, links_.at({each.peer, each.traffic}).next_arrival());
    }
    seen_ = network_->events(self()).wait_beyond(seen_, until);
  }
  void wake() override { network_->events(self()).add(); }
  void close() noexcept override {
    for (auto& [key, each] : links_) each.close();
    network_->notify_all();
  }
  [[nodiscard]] bool shares_memory() override { return true; }
  [[nodiscard]] std::vector<int> hosts() override {
    return std::vector<int>(static_cast<std::size_t>(size()), 0);
  }
  [[nodiscard]] shared_area share(std::size_t bytes, std::uint64_t id, deadline) override {
    return network_->share({group(), id}, static_cast<std::size_t>(size()), bytes);
  }

 private:
  [[nodiscard]] int self() const noexcept { return job_rank(rank()); }
  std::unique_ptr<links> make_subgroup(std::vector<int> members, int rank,
                                       std::uint64_t id) override {
    return std::make_unique<inproc_links>(network_, shared_job(), std::move(members), rank, id);
  }

  std::shared_ptr<inproc_network> network_;
  std::map<std::pair<int, channel>, inproc_link> links_;
  std::uint64_t seen_ = 0;  ///< events, by the last wait()
};

[[gnu::cold]] inline std::unique_ptr<links> inproc_network::attach(int rank) {
  // The links own the network and the job, and both may call it until they end.
  auto of_rank = std::make_shared<job>(
      job_options{.store = store_,
                  .rank = rank,
                  .world_size = size(),
                  .threads = thread_network{
                      .has_ended = [this, rank](int other) { return has_ended(other, rank); },
                      .wake_all = [this] { notify_all(); }}});
  return std::make_unique<inproc_links>(shared_from_this(), std::move(of_rank), all_ranks(size()),
                                        rank, 0);
}

}  // namespace parx
