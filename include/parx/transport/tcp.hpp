// tcp: ranks as processes, on one host or many.
//
// The hot path calls the sockets' non-blocking operations directly, on the thread that needs the
// progress, and sleeps in one poll(2) over exactly the links that can move it on. Two more descriptors
// are always in that set: one to wake the sleeper, and the job's abort key in the store, so that any
// rank's failure ends every wait within milliseconds.
#pragma once

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <parx/transport/detail/endpoint.hpp>

namespace parx {

class tcp_link final : public link {
 public:
  /// A link that waits for the peer (a higher rank) to connect.
  tcp_link(detail::endpoint& shared, detail::endpoint::connection_key key, int peer)
      : shared_(shared), key_(key), peer_(peer) {}
  /// A link that is open already.
  tcp_link(detail::endpoint& shared, descriptor socket, int peer)
      : shared_(shared), peer_(peer), socket_(std::move(socket)) {}

  [[nodiscard]] bool open() const noexcept { return socket_.valid(); }
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }

  std::size_t try_send(const_bytes first, const_bytes second) override {
    if (!opened()) return 0;
    iovec parts[2] = {{const_cast<std::byte*>(first.data), first.size},
                      {const_cast<std::byte*>(second.data), second.size}};
    msghdr message{};
    message.msg_iov = first.size > 0 ? parts : parts + 1;
    message.msg_iovlen = (first.size > 0 ? 1u : 0u) + (second.size > 0 ? 1u : 0u);
    const auto sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EINTR) return 0;
    throw link_lost(peer_, reason(errno));
  }

  std::size_t try_receive(mutable_bytes first, mutable_bytes second) override {
    if (!opened()) return 0;
    iovec parts[2] = {{first.data, first.size}, {second.data, second.size}};
    msghdr message{};
    message.msg_iov = first.size > 0 ? parts : parts + 1;
    message.msg_iovlen = (first.size > 0 ? 1u : 0u) + (second.size > 0 ? 1u : 0u);
    const auto received = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (received > 0) {
      if (first.size + second.size > quick_ack_bytes) {
        // After small messages the kernel delays acknowledgements by 40 ms and more, and a stream whose
        // window is still small stands still meanwhile. The flag does not last, so it is set again.
        const int on = 1;
        ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
      }
      return static_cast<std::size_t>(received);
    }
    if (received == 0) throw link_lost(peer_, "it closed the connection");
    if (errno == EAGAIN || errno == EINTR) return 0;
    throw link_lost(peer_, reason(errno));
  }

  void close() noexcept {
    if (socket_.valid()) ::shutdown(socket_.get(), SHUT_WR);
    socket_.close();
    closed_ = true;
  }

 private:
  static constexpr std::size_t quick_ack_bytes = std::size_t{32} << 10;

  [[nodiscard]] bool opened() {
    if (socket_.valid()) return true;
    if (closed_) throw link_lost(peer_, "this rank closed the connection");
    auto arrived = shared_.claim(key_);
    if (arrived) socket_ = std::move(*arrived);
    return socket_.valid();
  }
  [[nodiscard]] static std::string reason(int number) {
    if (number == ECONNRESET || number == EPIPE) return "it closed the connection (reset)";
    if (number == ETIMEDOUT) return "nothing was heard from it for 30 s (host or network down?)";
    return errno_text(number);
  }

  detail::endpoint& shared_;
  detail::endpoint::connection_key key_{};
  int peer_;
  descriptor socket_;
  bool closed_ = false;
};

class tcp_transport final : public transport {
 public:
  /// All ranks of the job.
  explicit tcp_transport(std::shared_ptr<detail::endpoint> shared)
      : tcp_transport(shared, everyone(shared->options().world_size), shared->options().rank, 0) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(members_.size()); }

  link& link_to(int peer, channel kind) override {
    const std::pair key{peer, kind};
    const auto found = links_.find(key);
    if (found != links_.end()) return *found->second;
    auto opened = rank_ > peer
                      ? std::make_unique<tcp_link>(
                            *shared_, shared_->connect(group_, kind, rank_, peer, global(peer)), peer)
                      : std::make_unique<tcp_link>(
                            *shared_, detail::endpoint::connection_key{group_, peer, kind}, peer);
    return *links_.emplace(key, std::move(opened)).first->second;
  }

  void wait(std::span<const link_interest> interests, std::chrono::milliseconds limit) override {
    // Another group's thread may accept a connection meant for this one, so look again soon.
    static constexpr std::chrono::milliseconds opening_interval{2};
    polled_.clear();
    polled_.push_back({wake_.get(), POLLIN, 0});
    polled_.push_back({shared_->abort_descriptor(), POLLIN, 0});
    bool opening = false;
    for (const link_interest& each : interests) {
      const auto& stream = static_cast<const tcp_link&>(*each.stream);
      if (stream.open()) {
        const int events = (each.readable ? POLLIN : 0) | (each.writable ? POLLOUT : 0);
        polled_.push_back({stream.socket(), static_cast<short>(events), 0});
      } else {
        opening = true;
      }
    }
    if (opening) {
      polled_.push_back({shared_->listener(), POLLIN, 0});
      limit = std::min(limit, opening_interval);
    }
    const int timeout = static_cast<int>(std::min<std::chrono::milliseconds::rep>(limit.count(), 60'000));
    if (::poll(polled_.data(), polled_.size(), timeout) <= 0) return;
    if (polled_[0].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
    }
    if (polled_[1].revents != 0) abort_signalled_ = true;
  }
  void wake() override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(wake_.get(), &one, sizeof one);
  }
  [[nodiscard]] bool may_spin() const noexcept override { return shared_->options().may_spin; }

  void abort(std::string_view reason) noexcept override { shared_->abort(reason); }
  void close() noexcept override {
    for (const auto& [key, each] : links_) each->close();
  }
  std::optional<std::string> abort_reason() override {
    // Asking the store's connection costs a system call, which each sleep would pay; poll has told.
    const bool told = abort_signalled_ || shared_->abort_known() || shared_->abort_descriptor() < 0;
    if (!told) return std::nullopt;
    return shared_->abort_reason();
  }

  void post_notice(std::string_view text) override {
    try {
      shared_->options().job_store->set(notice_key(rank_), text, deadline::after(std::chrono::seconds(2)));
    } catch (const error&) {
      // Only a help for diagnosis.
    }
  }
  std::optional<std::string> notice_of(int peer) override {
    try {
      const std::vector<std::string> keys{notice_key(peer)};
      const auto limit = deadline::after(std::chrono::seconds(2));
      if (!shared_->options().job_store->check(keys, limit)) return std::nullopt;
      return shared_->options().job_store->get(keys.front(), limit);
    } catch (const error&) {
      return std::nullopt;
    }
  }

  [[nodiscard]] bool has_ended(int peer) override { return shared_->has_ended(global(peer)); }

  [[nodiscard]] std::string describe(int peer) override {
    const auto record = shared_->record_of(global(peer), deadline::after(std::chrono::seconds(1)));
    if (!record) return fmt::format("rank {}", peer);
    return fmt::format("rank {} ({}, pid {})", peer, record->host, record->pid);
  }

  std::unique_ptr<transport> subgroup(std::span<const int> members, std::uint64_t id) override {
    std::vector<int> globals;
    int rank = -1;
    for (const int member : members) {
      if (member == rank_) rank = static_cast<int>(globals.size());
      globals.push_back(global(member));
    }
    return std::unique_ptr<transport>(new tcp_transport(shared_, std::move(globals), rank, id));
  }

 private:
  tcp_transport(std::shared_ptr<detail::endpoint> shared, std::vector<int> members, int rank,
                std::uint64_t group)
      : shared_(std::move(shared)), members_(std::move(members)), rank_(rank), group_(group),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_.valid()) throw_error(errc::io, "no event descriptor can be made: {}", errno_text(errno));
  }

  [[nodiscard]] static std::vector<int> everyone(int world_size) {
    std::vector<int> ranks(static_cast<std::size_t>(world_size));
    for (int rank = 0; rank < world_size; ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
    return ranks;
  }
  [[nodiscard]] int global(int rank) const noexcept { return members_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::string notice_key(int rank) const { return fmt::format("notice/{:x}/{}", group_, rank); }

  std::shared_ptr<detail::endpoint> shared_;
  std::vector<int> members_;
  int rank_;
  std::uint64_t group_;
  descriptor wake_;
  std::map<std::pair<int, channel>, std::unique_ptr<tcp_link>> links_;
  std::vector<pollfd> polled_;
  bool abort_signalled_ = false;
};

}  // namespace parx
