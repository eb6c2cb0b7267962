// socketpair_links: links written against transport/links.hpp and job.hpp alone, as somebody
// would write them for another network. Ranks are threads; a pair of Unix sockets joins two of them
// for each channel of a group.
//
// No memory is shared, and small kernel buffers make sends stop in the middle of a message.
// Threads: a socketpair_network is safe from any thread; each links object belongs to its rank's.
#pragma once

#include <parx/transport/links.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <parx/store/hash.hpp>
#include <parx/transport/job.hpp>

namespace parx_test {

/// What the ranks of a job have in common.
class socketpair_network {
 public:
  explicit socketpair_network(int world) {
    for (int rank = 0; rank < world; ++rank) {
      ranks_.push_back({::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), true});
    }
  }
  ~socketpair_network() {
    for (const auto& [key, ends] : pairs_) {
      for (const int end : ends) ::close(end);
    }
    for (const auto& each : ranks_) ::close(each.alarm);
  }
  socketpair_network(const socketpair_network&) = delete;
  socketpair_network& operator=(const socketpair_network&) = delete;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int alarm(int rank) const {
    return ranks_.at(static_cast<std::size_t>(rank)).alarm;
  }
  void ring(int rank) const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(alarm(rank), &one, sizeof one);
  }

  /// The end of rank `own`.
  [[nodiscard]] int end_of(std::uint64_t group, parx::channel traffic, int own, int other) {
    const std::lock_guard lock(mutex_);
    const auto [low, high] = std::minmax(own, other);
    const auto [found, is_new] = pairs_.try_emplace({group, traffic, low, high});
    if (is_new) {
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, found->second.data());
      const int bytes = 4096;
      for (const int end : found->second) {
        ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
      }
    }
    return found->second[own == low ? 0 : 1];
  }
  /// What the rank has sent in this group can still be received.
  void end_group(std::uint64_t group, int own) noexcept {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, ends] : pairs_) {
      const auto& [of, traffic, low, high] = key;
      if (of == group && (own == low || own == high)) ::shutdown(ends[own == low ? 0 : 1], SHUT_WR);
    }
  }
  void end_rank(int rank) {
    const std::lock_guard lock(mutex_);
    ranks_.at(static_cast<std::size_t>(rank)).alive = false;
  }
  [[nodiscard]] bool has_ended(int rank) {
    const std::lock_guard lock(mutex_);
    return !ranks_.at(static_cast<std::size_t>(rank)).alive;
  }

  [[nodiscard]] std::shared_ptr<parx::job> job_of(int rank) {
    return std::make_shared<parx::job>(parx::job_options{
        .store = store_,
        .rank = rank,
        .world_size = size(),
        .threads = parx::thread_network{[this](int each) { return has_ended(each); },
                                        [this] {
                                          for (int each = 0; each < size(); ++each) ring(each);
                                        }}});
  }

 private:
  struct rank_state {
    int alarm;
    bool alive;
  };
  std::mutex mutex_;
  std::vector<rank_state> ranks_;
  std::map<std::tuple<std::uint64_t, parx::channel, int, int>, std::array<int, 2>> pairs_;
  std::shared_ptr<parx::store> store_ = std::make_shared<parx::hash_store>();
};

class socketpair_link final : public parx::link {
 public:
  socketpair_link(int socket, int peer) : socket_(socket), peer_(peer) {}

  std::size_t try_send(const parx::const_bytes& first, const parx::const_bytes& second) override {
    if (first.size + second.size == 0) return 0;
    return move(const_cast<std::byte*>(first.data), first.size, const_cast<std::byte*>(second.data),
                second.size, [this](const msghdr& all) {
                  return ::sendmsg(socket_, &all, MSG_DONTWAIT | MSG_NOSIGNAL);
                });
  }
  std::size_t try_receive(const parx::mutable_bytes& first,
                          const parx::mutable_bytes& second) override {
    if (first.size + second.size == 0) return 0;
    ssize_t last = 1;
    const auto got = move(first.data, first.size, second.data, second.size, [&](msghdr& all) {
      return last = ::recvmsg(socket_, &all, MSG_DONTWAIT);
    });
    if (last == 0) throw parx::link_lost(peer_, "it closed the connection", parx::link_end::closed);
    return got;
  }
  [[nodiscard]] int socket() const noexcept { return socket_; }

 private:
  template <typename Call>
  std::size_t move(std::byte* first, std::size_t first_size, std::byte* second,
                   std::size_t second_size, Call call) const {
    iovec parts[] = {{first, first_size}, {second, second_size}};
    msghdr all{};
    all.msg_iov = parts;
    all.msg_iovlen = 2;
    const ssize_t moved = call(all);
    if (moved >= 0) return static_cast<std::size_t>(moved);
    if (errno == EAGAIN || errno == EINTR) return 0;
    throw parx::link_lost(peer_, "it closed the connection (reset)");
  }

  int socket_;
  int peer_;
};

class socketpair_links final : public parx::links {
 public:
  /// Among all ranks of the job.
  socketpair_links(const std::shared_ptr<socketpair_network>& network, std::vector<int> everyone,
                   int rank)
      : socketpair_links(network, network->job_of(rank), std::move(everyone), rank, 0) {}
  socketpair_links(std::shared_ptr<socketpair_network> network, std::shared_ptr<parx::job> of,
                   std::vector<int> members, int rank, std::uint64_t id)
      : links(std::move(of), std::move(members), rank, id), network_(std::move(network)) {}
  ~socketpair_links() override {
    close();
    if (group() == 0) network_->end_rank(self());
  }

  parx::link& link_to(int peer, parx::channel traffic, std::chrono::milliseconds) override {
    const std::pair key(peer, traffic);
    if (const auto known = links_.find(key); known != links_.end()) return known->second;
    const int socket = network_->end_of(group(), traffic, self(), job_rank(peer));
    return links_.try_emplace(key, socket, peer).first->second;
  }
  void for_each_link(parx::channel, const std::function<void(int, parx::link&)>&) override {}

  void wait(const std::vector<parx::link_interest>& interests,
            std::chrono::milliseconds limit) override {
    std::vector<pollfd> polled{{network_->alarm(self()), POLLIN, 0}};
    for (const parx::link_interest& each : interests) {
      const int events = (each.readable ? POLLIN : 0) | (each.writable ? POLLOUT : 0);
      polled.push_back(
          {links_.at({each.peer, each.traffic}).socket(), static_cast<short>(events), 0});
    }
    // The alarm is the rank's, and another group's thread may have taken it: look again soon.
    const auto most = std::min(limit, std::chrono::milliseconds(5));
    ::poll(polled.data(), polled.size(), static_cast<int>(most.count()));
    std::uint64_t rings = 0;
    if (polled[0].revents != 0) {
      [[maybe_unused]] const auto got = ::read(polled[0].fd, &rings, sizeof rings);
    }
  }
  void wake() override { network_->ring(self()); }
  void close() noexcept override { network_->end_group(group(), self()); }
  [[nodiscard]] bool shares_memory() override { return false; }
  [[nodiscard]] std::vector<int> hosts() override {
    return std::vector<int>(static_cast<std::size_t>(size()), 0);
  }
  [[nodiscard]] parx::shared_area share(std::size_t bytes, std::uint64_t id,
                                        parx::deadline) override {
    const auto own = std::make_shared<std::vector<std::byte>>(bytes);
    std::vector<std::byte*> parts(static_cast<std::size_t>(size()), nullptr);
    parts[static_cast<std::size_t>(rank())] = own->data();
    return {std::move(parts), bytes, id, own};
  }

 private:
  [[nodiscard]] int self() const noexcept { return job_rank(rank()); }
  std::unique_ptr<parx::links> make_subgroup(std::vector<int> members, int rank,
                                             std::uint64_t id) override {
    return std::make_unique<socketpair_links>(network_, shared_job(), std::move(members), rank,
                                              id);
  }

  std::shared_ptr<socketpair_network> network_;
  std::map<std::pair<int, parx::channel>, socketpair_link> links_;
};

}  // namespace parx_test
