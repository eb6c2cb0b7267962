// hybrid_links: ranks are processes, joined by shared memory inside a host and by TCP between
// hosts, or by the network that PARX_TRANSPORT names.
//
// A rank sleeps in one poll(2) over the links that it waits for. Two more descriptors are always in
// that set: the one that wake() makes readable, and the watch on the job's abort key in the store,
// so that any rank's failure ends every wait within milliseconds. Links inside a host take no
// descriptor of their own: two processes have one wake_channel for all their groups. Each TCP link
// has a connection of its own, so that unread bytes of one group never block another group.
#pragma once

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/transport/shm.hpp>
#include <parx/transport/striped.hpp>
#include <parx/transport/tcp.hpp>

namespace parx::inline PARX_ABI {

class hybrid_links final : public links {
 public:
  /// The links among all ranks of the job.
  explicit hybrid_links(const std::shared_ptr<detail::endpoint>& shared)
      : hybrid_links(shared, all_ranks(shared->options().world_size), shared->options().rank, 0) {}

  link& link_to(int peer, channel traffic,
                std::chrono::milliseconds patience = longest_patience) override {
    auto& slot = link_slot(peer, traffic);
    if (slot == nullptr) slot = make_link(peer, traffic, record_of(peer, patience));
    return *slot;
  }

  void for_each_link(channel traffic, const std::function<void(int, link&)>& visit) override {
    for (int peer = 0; peer < size(); ++peer) {
      if (const auto& opened = link_slot(peer, traffic); opened != nullptr) visit(peer, *opened);
    }
  }

  void wait(const std::vector<link_interest>& interests, std::chrono::milliseconds limit) override {
    // Another group's thread may accept a connection meant for this one, so check again soon.
    static constexpr std::chrono::milliseconds opening_interval{2};
    const detail::sleep_scope asleep(shared_->sleeping_groups(), group());
    if (woken_.exchange(false)) limit = limit.zero();
    polled_.clear();
    ends_.clear();
    polled_.push_back({asleep.descriptor(), POLLIN, 0});
    polled_.push_back({job().abort_descriptor(), POLLIN, 0});
    bool opening = false;
    bool look_again = false;
    for (const link_interest& each : interests) {
      detail::process_link& stream = *link_slot(each.peer, each.traffic);
      // A link that is not open yet may append nothing, not even -1: poll(2) fails with more
      // entries than the process may have descriptors.
      const auto plan = stream.before_sleep(each.readable, each.writable, polled_);
      ends_.push_back(polled_.size());
      opening |= plan.awaiting;
      look_again |= plan.looks_twice;
    }
    if (look_again && limit.count() > 0) {
      limit = can_move_after_all(interests) ? limit.zero() : std::min(limit, nap_);
    }
    if (opening) {
      const auto [tcp, memory] = shared_->incoming().listeners();
      polled_.push_back({tcp, POLLIN, 0});
      polled_.push_back({memory, POLLIN, 0});
      limit = std::min(limit, opening_interval);
    }
    const int timeout =
        static_cast<int>(std::min<std::chrono::milliseconds::rep>(limit.count(), 60'000));
    const int found = ::poll(polled_.data(), polled_.size(), timeout);
    if (found < 0) {
      for (pollfd& each : polled_) each.revents = 0;
    }
    nap_ = found == 0 && limit == nap_ ? std::min(2 * nap_, longest_nap) : first_nap;
    std::size_t next = 2;
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      short events = 0;
      for (; next < ends_[i]; ++next) events = static_cast<short>(events | polled_[next].revents);
      link_slot(interests[i].peer, interests[i].traffic)->after_sleep(events);
    }
    // exchange() rather than a store: the read makes the writes before wake() visible here.
    if (polled_[0].revents != 0) woken_.exchange(false);
    if (polled_[1].revents != 0) job().abort_signalled();
  }
  void wake() override {
    woken_ = true;
    shared_->sleeping_groups().wake(group());
  }
  [[gnu::cold]] void close() noexcept override {
    for (const auto& peer : links_) {
      for (const auto& each : peer) {
        if (each != nullptr) each->close();
      }
    }
    shared_->incoming().forget(group());
    if (shared_->other_network() != nullptr) shared_->other_network()->forget(group());
  }
  [[nodiscard, gnu::cold]] bool shares_memory() override {
    if (!shares_memory_) shares_memory_ = host_ranks().size() == links_.size();
    return *shares_memory_;
  }

  [[nodiscard, gnu::cold]] std::vector<int> hosts() override {
    std::vector<int> numbers;
    std::vector<int> firsts;  // host numbers in the job, in the order of this group's ranks
    for (int rank = 0; rank < size(); ++rank) {
      const auto found = std::find(firsts.begin(), firsts.end(), place_of(rank).host);
      numbers.push_back(static_cast<int>(found - firsts.begin()));
      if (found == firsts.end()) firsts.push_back(place_of(rank).host);
    }
    return numbers;
  }

  [[nodiscard, gnu::cold]] shared_area share(std::size_t bytes, std::uint64_t id,
                                             deadline limit) override {
    const std::vector<int> ranks = host_ranks();
    const std::size_t part = std::max((bytes + page_size - 1) / page_size * page_size, page_size);
    const std::size_t whole = part * ranks.size();
    // The id is a field of its own in the key: group + id could equal another group's number.
    const detail::link_key key{group(), ranks.front(), detail::purpose::memory,
                               static_cast<int>(id)};
    std::shared_ptr<detail::shared_memory> memory;
    if (ranks.size() == 1) {
      memory.reset(new detail::shared_memory(whole));
    } else {
      memory.reset(new detail::shared_memory(share_among(ranks, key, bytes, whole, limit)));
    }
    shared_area area{std::vector<std::byte*>(links_.size(), nullptr), bytes, id, memory};
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      area.of_rank[static_cast<std::size_t>(ranks[i])] = memory->data() + i * part;
    }
    return area;
  }

 private:
  using link_owner = std::unique_ptr<detail::process_link>;

  hybrid_links(const std::shared_ptr<detail::endpoint>& shared, std::vector<int> members, int rank,
               std::uint64_t group)
      : links(shared->job(), std::move(members), rank, group),
        shared_(shared),
        links_(static_cast<std::size_t>(size())) {}

  [[gnu::cold]] std::unique_ptr<links> make_subgroup(std::vector<int> members, int rank,
                                                     std::uint64_t id) override {
    return std::unique_ptr<links>(new hybrid_links(shared_, std::move(members), rank, id));
  }

  /// Checks again for bytes that a peer published before it could see that this rank sleeps, for as
  /// long as a store needs to become visible on another core (some 100 ns). If one takes longer,
  /// the short first nap bounds the delay.
  [[nodiscard]] bool can_move_after_all(const std::vector<link_interest>& interests) {
    static constexpr std::chrono::nanoseconds store_latency{500};
    const auto until = std::chrono::steady_clock::now() + store_latency;
    do {
      for (const link_interest& each : interests) {
        const detail::process_link& stream = *link_slot(each.peer, each.traffic);
        if (stream.ready(each.readable, each.writable)) return true;
        if (each.word != nullptr && each.word->load(std::memory_order_acquire) == each.awaited) {
          return true;
        }
      }
    } while (std::chrono::steady_clock::now() < until);
    return false;
  }

  [[nodiscard]] link_owner& link_slot(int peer, channel traffic) noexcept {
    return links_[static_cast<std::size_t>(peer)][static_cast<std::size_t>(traffic)];
  }
  [[nodiscard, gnu::cold]] link_owner make_link(int peer, channel traffic,
                                                const detail::peer_record& record) {
    const bool share = place_of(peer).shares_memory_with(place_of(rank()));
    const auto what_for =
        traffic == channel::collective ? detail::purpose::collective : detail::purpose::message;
    const detail::link_key key{group(), peer, what_for};
    if (share) return link_owner(new shm_link(*shared_, key, rank(), job_rank(peer), record));
    if (shared_->own().shares_network_with(record)) {
      return shared_->other_network()->open(key, rank(), job_rank(peer), record);
    }
    const int count = std::min(shared_->own().streams, record.streams);
    if (count == 1) return link_owner(new tcp_link(make_stream(key, record), peer));
    return link_owner(new striped_link(peer, count, [&](int number) {
      return make_stream({group(), peer, what_for, number}, record);
    }));
  }
  [[nodiscard]] detail::tcp_stream make_stream(const detail::link_key& key,
                                               const detail::peer_record& record) {
    if (rank() > key.peer) return {*shared_, key, rank(), job_rank(key.peer), record};
    return {*shared_, key, job_rank(key.peer), record.boot_id == shared_->own().boot_id};
  }

  /// The ranks that share memory with this one, itself included, in order.
  [[nodiscard]] std::vector<int> host_ranks() {
    std::vector<int> ranks;
    for (int each = 0; each < size(); ++each) {
      if (each == rank() || place_of(each).shares_memory_with(place_of(rank()))) {
        ranks.push_back(each);
      }
    }
    return ranks;
  }

  [[nodiscard]] const detail::placement& place_of(int peer) {
    return job().peers().placements()[static_cast<std::size_t>(job_rank(peer))];
  }
  /// Asks the store once; later calls return the stored record. Throws link_lost.
  [[nodiscard, gnu::cold]] const detail::peer_record& record_of(
      int peer, std::chrono::milliseconds patience) {
    using time = std::chrono::milliseconds;
    const auto limit = deadline::after(std::min<time>(patience, longest_patience));
    try {
      return job().peers().record_of(job_rank(peer), limit);
    } catch (const error&) {
      std::throw_with_nested(link_lost(
          peer, formatted("the job's store, which rank 0 or the launcher keeps, has not told its "
                          "address within {:.1f} s (is that process stopped?)",
                          limit.elapsed_seconds())));
    }
  }

  /// The memory of all ranks of this host: the first of them creates it and passes it on.
  [[nodiscard, gnu::cold]] detail::shared_memory share_among(const std::vector<int>& ranks,
                                                             const detail::link_key& key,
                                                             std::size_t bytes, std::size_t whole,
                                                             const deadline& limit) {
    if (ranks.front() == rank()) {
      const descriptor file = detail::shared_memory::create(whole);
      for (const int each : ranks) {
        if (each != rank()) pass_memory(file, {key.group, each, key.what_for, key.stream}, limit);
      }
      return {file, whole};
    }
    detail::shared_memory memory = await_memory(key, limit);
    if (const std::size_t found = memory.size(); found != whole) {
      throw error(errc::mismatch,
                  formatted("rank {} shares {} bytes a rank, but {} shares {}: all ranks must "
                            "ask for the same size",
                            rank(), bytes, describe(ranks.front()), found / ranks.size()),
                  {});
    }
    return memory;
  }

  /// Sends a rank of this host the descriptor of shared memory.
  [[gnu::cold]] void pass_memory(const descriptor& file, const detail::link_key& key,
                                 const deadline& limit) {
    const detail::peer_record& record = record_of(key.peer, limit.remaining());
    auto socket = shared_->connect_to_memory(key.peer, record);
    while (!socket.valid()) {
      if (limit.passed()) {
        throw link_lost(key.peer, "it does not accept shared memory: its backlog stays full");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      socket = shared_->connect_to_memory(key.peer, record);
    }
    shared_->pass_memory(socket, file, key, rank(), record);
  }
  [[nodiscard, gnu::cold]] detail::shared_memory await_memory(const detail::link_key& key,
                                                              const deadline& limit) {
    auto next_look = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    for (;;) {
      // Before the claim: a rank may pass its memory on and leave, but not the other way round.
      const bool looks = std::chrono::steady_clock::now() > next_look;
      const bool ended = looks && job().has_ended(job_rank(key.peer));
      if (looks) next_look += std::chrono::seconds(1);
      if (auto arrived = shared_->incoming().claim(key)) return std::move(arrived.memory);
      if (auto reason = job().abort_reason()) throw error(errc::aborted, reason->text, {});
      if (ended) throw link_lost(key.peer, "it has ended", link_end::closed);
      if (limit.passed()) {
        throw error(errc::timeout,
                    formatted("{} has not passed its shared memory within {:.1f} s",
                              describe(key.peer), limit.elapsed_seconds()),
                    {});
      }
      const auto [tcp, memory] = shared_->incoming().listeners();
      pollfd polled[] = {{memory, POLLIN, 0}, {job().abort_descriptor(), POLLIN, 0}};
      ::poll(polled, 2, 2);  // not longer: another thread may accept the connection
    }
  }

  static constexpr std::size_t page_size = 4096;
  static constexpr std::chrono::milliseconds first_nap{1};
  static constexpr std::chrono::milliseconds longest_nap{100};

  std::shared_ptr<detail::endpoint> shared_;
  std::vector<std::array<link_owner, channel_count>> links_;  ///< by peer; null until first use
  std::atomic<bool> woken_{false};  ///< wake() was called, and no wait() has consumed it yet
  std::vector<pollfd> polled_;
  std::vector<std::size_t> ends_;  ///< end of each interest's entries in polled_, which begin at 2
  std::chrono::milliseconds nap_ = first_nap;
  std::optional<bool> shares_memory_;
};

}  // namespace parx
