// endpoint: what all TCP groups of one process share.
//
// The listening socket, the connections that arrived for groups which have not asked for them yet, the
// peers' records and the job-wide abort key. For a pair of ranks the higher one connects, so that there
// is never more than one attempt. A connection is taken for a peer only after its hello with the job's
// token; at most `most_strangers` others may be half open, for five seconds each.
// Threads: safe from any thread.
#pragma once

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/log.hpp>
#include <parx/store/store.hpp>
#include <parx/transport/detail/frame.hpp>
#include <parx/transport/detail/interfaces.hpp>
#include <parx/transport/detail/peer_record.hpp>
#include <parx/transport/transport.hpp>

namespace parx::detail {

struct endpoint_options {
  std::shared_ptr<parx::store> job_store;  ///< every key of the job lies under its prefix
  std::string store_host;            ///< towards which this rank's address is chosen
  int rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  bool may_spin = false;
  environment env;
};

class endpoint {
 public:
  using connection_key = std::tuple<std::uint64_t, int, channel>;  // group, peer in the group, channel

  /// Starts to listen and publishes this rank's record. Throws parx::error where that fails.
  explicit endpoint(endpoint_options options) : options_(std::move(options)) {
    own_.host = host_name();
    own_.boot_id = read_line("/proc/sys/kernel/random/boot_id");
    own_.pid = ::getpid();
    own_.address = choose_address(options_.env, options_.store_host,
                                  options_.local_world_size < options_.world_size);
    listen();
    const std::string offer = random_token();
    token_ = options_.job_store->compare_set("token", "", offer);
    options_.job_store->set(record_key(options_.rank), own_.to_text());
    abort_watch_ = options_.job_store->watch("abort");
  }

  [[nodiscard]] static std::string record_key(int rank) { return fmt::format("rank/{}", rank); }
  [[nodiscard]] const endpoint_options& options() const noexcept { return options_; }
  [[nodiscard]] const peer_record& own() const noexcept { return own_; }
  [[nodiscard]] int listener() const noexcept { return listener_.get(); }
  [[nodiscard]] int abort_descriptor() const noexcept { return abort_watch_->descriptor(); }

  /// The record of a rank of the job; nullopt where `limit` passes first.
  [[nodiscard]] std::optional<peer_record> record_of(int rank, deadline limit) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = records_.find(rank);
      if (found != records_.end()) return found->second;
    }
    try {
      const auto record = peer_record::from_text(options_.job_store->get(record_key(rank), limit));
      const std::lock_guard lock(mutex_);
      return records_[rank] = record;
    } catch (const error&) {
      return std::nullopt;
    }
  }

  /// Connects to rank `global_peer` and introduces this rank as `from` of `group`. Blocks until the
  /// peer's kernel has accepted, which it does without its program's help. Throws link_lost.
  [[nodiscard]] descriptor connect(std::uint64_t group, channel kind, int from, int to, int global_peer) {
    const deadline limit = deadline::after(std::chrono::seconds(30));
    const auto record = record_of(global_peer, limit);
    if (!record) throw link_lost(to, "its address is not in the job's store");
    if (is_loopback(record->address) && record->boot_id != own_.boot_id) {
      throw link_lost(to, fmt::format("it is on another host ({}) but offers the loopback address {}; set "
                                      "PARX_SOCKET_IFNAME there to the interface that faces the others",
                                      record->host, record->address));
    }
    descriptor socket = connect_to(*record, to, limit);
    link_hello greeting;
    greeting.channel = static_cast<std::uint32_t>(kind);
    greeting.group = group;
    greeting.from = from;
    greeting.to = to;
    std::copy_n(token_.begin(), std::min(token_.size(), greeting.token.size()), greeting.token.begin());
    const auto bytes = std::bit_cast<frame_bytes>(greeting);
    if (::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
      throw link_lost(to, fmt::format("it does not take a greeting: {}", errno_text(errno)));
    }
    tune(socket.get(), record->boot_id == own_.boot_id);
    return socket;
  }

  /// Whether a rank's process is gone: its host answers, but nobody listens at its port any more.
  [[nodiscard]] bool has_ended(int global_peer) {
    static constexpr int patience_ms = 200;
    const auto record = record_of(global_peer, deadline::after(std::chrono::seconds(1)));
    if (!record) return false;
    const auto [address, length] = socket_address(record->address, record->port);
    const descriptor probe(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe.valid()) return false;
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) return false;
    if (errno != EINPROGRESS) return errno == ECONNREFUSED;
    pollfd polled{probe.get(), POLLOUT, 0};
    if (::poll(&polled, 1, patience_ms) <= 0) return false;
    int failure = 0;
    socklen_t size = sizeof failure;
    ::getsockopt(probe.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
    return failure == ECONNREFUSED;
  }

  /// Takes the connection that a higher rank has opened, once it is there. Does not block.
  [[nodiscard]] std::optional<descriptor> claim(const connection_key& key) {
    const std::lock_guard lock(mutex_);
    accept_pending();
    const auto found = arrived_.find(key);
    if (found == arrived_.end()) return std::nullopt;
    descriptor socket = std::move(found->second);
    arrived_.erase(found);
    return socket;
  }

  void abort(std::string_view reason) noexcept {
    try {
      static constexpr std::size_t longest_reason = 4096;
      options_.job_store->compare_set("abort", "", reason.substr(0, longest_reason),
                                      deadline::after(std::chrono::seconds(2)));
    } catch (const std::exception&) {
      // The store is gone, and its clients notice that by themselves.
    }
  }

  /// Whether abort_reason() has been found by any group of this process. Costs nothing.
  [[nodiscard]] bool abort_known() const noexcept { return abort_known_.load(std::memory_order_acquire); }

  [[nodiscard]] std::optional<std::string> abort_reason() {
    const std::lock_guard lock(mutex_);
    if (!abort_reason_) {
      switch (abort_watch_->ready()) {
        case watch_state::pending: break;
        case watch_state::set:
          abort_reason_ = abort_watch_->value(deadline::after(std::chrono::seconds(2)));
          break;
        case watch_state::lost:
          abort_reason_ = fmt::format("the job's store, {}, is gone: the process that kept it (usually "
                                      "rank 0) has ended or was killed", options_.job_store->describe());
          break;
      }
    }
    if (abort_reason_) abort_known_.store(true, std::memory_order_release);
    return abort_reason_;
  }

 private:
  static constexpr std::size_t most_strangers = 1024;
  static constexpr std::chrono::seconds stranger_patience{5};

  struct stranger {
    descriptor socket;
    frame_bytes bytes{};
    std::size_t received = 0;
    std::chrono::steady_clock::time_point since;
  };

  [[nodiscard]] static std::string random_token() {
    std::array<unsigned char, 16> bytes{};
    const descriptor source(::open("/dev/urandom", O_RDONLY | O_CLOEXEC));
    if (!source.valid() || ::read(source.get(), bytes.data(), bytes.size()) != 16) {
      throw_error(errc::io, "/dev/urandom cannot be read: {}", errno_text(errno));
    }
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    return text;
  }

  [[nodiscard]] static std::pair<sockaddr_storage, socklen_t> socket_address(const std::string& address,
                                                                             std::uint16_t port) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* raw = nullptr;
    if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &raw) != 0) {
      throw_error(errc::io, "\"{}\" is not a numeric network address", address);
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, &::freeaddrinfo);
    sockaddr_storage result{};
    std::memcpy(&result, raw->ai_addr, raw->ai_addrlen);
    return {result, raw->ai_addrlen};
  }

  void listen() {
    auto [address, length] = socket_address(own_.address, 0);
    listener_ = descriptor(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_.valid() ||
        ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(listener_.get(), SOMAXCONN) != 0 ||
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw_error(errc::io, "rank {} cannot listen on {}: {}", options_.rank, own_.address,
                  errno_text(errno));
    }
    own_.port = ntohs(address.ss_family == AF_INET
                          ? reinterpret_cast<const sockaddr_in*>(&address)->sin_port
                          : reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  }

  [[nodiscard]] descriptor connect_to(const peer_record& record, int peer, const deadline& limit) {
    const auto where = fmt::format("{}:{}", record.address, record.port);
    const auto [address, length] = socket_address(record.address, record.port);
    descriptor socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) throw link_lost(peer, fmt::format("no socket can be made: {}", errno_text(errno)));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) return socket;
    while (errno == EINPROGRESS || errno == EINTR) {
      std::array<pollfd, 2> polled{{{socket.get(), POLLOUT, 0}, {abort_descriptor(), POLLIN, 0}}};
      ::poll(polled.data(), polled.size(), limit.poll_timeout(100));
      if (polled[0].revents != 0) {
        int failure = 0;
        socklen_t size = sizeof failure;
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
        if (failure == 0) return socket;
        errno = failure;
        break;
      }
      if (abort_reason()) throw link_lost(peer, "another rank failed while connecting");
      if (limit.passed()) {
        errno = ETIMEDOUT;
        break;
      }
      errno = EINPROGRESS;
    }
    throw link_lost(peer, fmt::format("its address {} does not answer: {}", where, errno_text(errno)));
  }

  static void tune(int socket, bool same_host) noexcept {
    const auto set = [socket](int level, int name, int value) {
      ::setsockopt(socket, level, name, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    // A peer whose host lost power sends no FIN: found by keepalive on idle links, by the user timeout
    // on busy ones.
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
    // Loopback loses nothing; pacing by bbr costs about a tenth of its throughput.
    if (same_host) ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
  }

  /// Locked. Accepts what is there and reads the greetings that are complete.
  void accept_pending() {
    while (strangers_.size() < most_strangers) {
      descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) {
        if (errno == EMFILE || errno == ENFILE) {
          throw_error(errc::io, "rank {} cannot accept another connection: {}; raise `ulimit -n`",
                      options_.rank, errno_text(errno));
        }
        break;
      }
      strangers_.push_back({std::move(socket), {}, 0, std::chrono::steady_clock::now()});
    }
    const auto now = std::chrono::steady_clock::now();
    std::erase_if(strangers_, [&](stranger& each) {
      const auto got = ::recv(each.socket.get(), each.bytes.data() + each.received,
                              frame_size - each.received, 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
      if (got > 0) each.received += static_cast<std::size_t>(got);
      if (each.received < frame_size) return now - each.since > stranger_patience;
      welcome(each);
      return true;
    });
  }

  void welcome(stranger& each) {
    const auto greeting = parse_hello(each.bytes);
    if (!greeting || !std::equal(token_.begin(), token_.end(), greeting->token.begin(),
                                 greeting->token.begin() + static_cast<std::ptrdiff_t>(token_.size()))) {
      log(log_level::debug, "closed a connection that did not show this job's token");
      return;
    }
    // Whether the peer is on this host is known from its record; asking the store here would block.
    tune(each.socket.get(), is_loopback(own_.address));
    arrived_.insert_or_assign({greeting->group, greeting->from, static_cast<channel>(greeting->channel)},
                              std::move(each.socket));
  }

  endpoint_options options_;
  peer_record own_;
  descriptor listener_;
  std::string token_;
  std::unique_ptr<store_watch> abort_watch_;

  std::mutex mutex_;
  std::map<int, peer_record> records_;
  std::vector<stranger> strangers_;
  std::map<connection_key, descriptor> arrived_;
  std::optional<std::string> abort_reason_;
  std::atomic<bool> abort_known_{false};
};

}  // namespace parx::detail
