// socketpair_transport: a transport written against transport/transport.hpp alone, as somebody
// would write one for another network. Ranks are threads; a pair of Unix sockets joins two of them
// for each channel of a group.
//
// No memory is shared, and small kernel buffers make sends stop in the middle of a message.
// Threads: a socketpair_network is safe from any thread; each transport belongs to its rank's.
#pragma once

#include <parx/transport/transport.hpp>

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
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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

  void abort(const parx::failure_record& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (!reason_) reason_ = reason;
    }
    for (int rank = 0; rank < size(); ++rank) ring(rank);
  }
  [[nodiscard]] std::optional<parx::failure_record> abort_reason() {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  void post(std::uint64_t group, int rank, std::string_view text) {
    const std::lock_guard lock(mutex_);
    notices_[{group, rank}] = std::string(text);
  }
  [[nodiscard]] std::vector<std::string> notices_of(int rank) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> all;
    for (const auto& [key, text] : notices_) {
      if (key.second == rank) all.push_back(text);
    }
    return all;
  }

 private:
  struct rank_state {
    int alarm;
    bool alive;
  };
  std::mutex mutex_;
  std::vector<rank_state> ranks_;
  std::map<std::tuple<std::uint64_t, parx::channel, int, int>, std::array<int, 2>> pairs_;
  std::optional<parx::failure_record> reason_;
  std::map<std::pair<std::uint64_t, int>, std::string> notices_;
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
  std::size_t try_receive(parx::mutable_bytes first, parx::mutable_bytes second) override {
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

class socketpair_transport final : public parx::transport {
 public:
  /// `members` are ranks of the job.
  socketpair_transport(std::shared_ptr<socketpair_network> network, std::vector<int> members,
                       int rank, std::uint64_t group)
      : network_(std::move(network)), members_(std::move(members)), rank_(rank), group_(group) {}
  ~socketpair_transport() override {
    close();
    if (group_ == 0) network_->end_rank(job_rank(rank_));
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(members_.size()); }

  parx::link& link_to(int peer, parx::channel traffic, std::chrono::milliseconds) override {
    const std::pair key(peer, traffic);
    if (const auto known = links_.find(key); known != links_.end()) return known->second;
    const int socket = network_->end_of(group_, traffic, job_rank(rank_), job_rank(peer));
    return links_.try_emplace(key, socket, peer).first->second;
  }

  void wait(const std::vector<parx::link_interest>& interests,
            std::chrono::milliseconds limit) override {
    std::vector<pollfd> polled{{network_->alarm(job_rank(rank_)), POLLIN, 0}};
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
  void wake() override { network_->ring(job_rank(rank_)); }
  [[nodiscard]] bool may_spin() const noexcept override { return false; }

  void abort(const parx::failure_record& reason) noexcept override { network_->abort(reason); }
  void close() noexcept override { network_->end_group(group_, job_rank(rank_)); }
  std::optional<parx::failure_record> abort_reason() override { return network_->abort_reason(); }

  void post_notice(std::string_view text) override {
    network_->post(group_, job_rank(rank_), text);
  }
  std::vector<std::string> notices_of(int job_rank) override {
    return network_->notices_of(job_rank);
  }
  [[nodiscard]] bool has_ended(int peer) override { return network_->has_ended(job_rank(peer)); }
  [[nodiscard]] std::string describe(int peer) override { return "rank " + std::to_string(peer); }
  [[nodiscard]] std::string host_of(int) override { return {}; }
  [[nodiscard]] int job_rank(int peer) const noexcept override {
    return members_[static_cast<std::size_t>(peer)];
  }

  [[nodiscard]] bool shares_memory() override { return false; }
  [[nodiscard]] std::vector<int> hosts() override { return std::vector<int>(members_.size(), 0); }
  [[nodiscard]] parx::shared_area share(std::size_t bytes, std::uint64_t id,
                                        parx::deadline) override {
    const auto own = std::make_shared<std::vector<std::byte>>(bytes);
    std::vector<std::byte*> parts(members_.size(), nullptr);
    parts[static_cast<std::size_t>(rank_)] = own->data();
    return {std::move(parts), bytes, id, own};
  }

  std::unique_ptr<parx::transport> subgroup(std::span<const int> members,
                                            std::uint64_t id) override {
    std::vector<int> globals;
    for (const int each : members) globals.push_back(job_rank(each));
    const auto own = std::find(members.begin(), members.end(), rank_) - members.begin();
    return std::make_unique<socketpair_transport>(network_, std::move(globals),
                                                  static_cast<int>(own), id);
  }

 private:
  std::shared_ptr<socketpair_network> network_;
  std::vector<int> members_;
  int rank_;
  std::uint64_t group_;
  std::map<std::pair<int, parx::channel>, socketpair_link> links_;
};

}  // namespace parx_test
