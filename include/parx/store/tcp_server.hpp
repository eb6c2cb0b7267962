// tcp_store_server: hosts a store on a TCP port for clients of parx and of every release of
// PyTorch, all at once.
//
// One thread waits in epoll for sockets that are ready. It never blocks on a client: requests are
// parsed from whatever bytes have come, answers that do not fit the socket are queued, and a client
// that does not take its answers is not read from. Bytes that are no request (scanners, browsers,
// TLS) cost their connection and nothing else. A server that was given a job's key answers nobody
// who has not proved to know it.
//
// Threads: construct, destroy and ask from any one thread; the constructor starts the server's own
// thread, the destructor stops it, closes every connection and frees the port.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/log.hpp>
#include <parx/core/own_process.hpp>
#include <parx/core/stream_options.hpp>
#include <parx/store/detail/admission.hpp>
#include <parx/store/detail/connect.hpp>
#include <parx/store/detail/listen.hpp>
#include <parx/store/detail/request_parser.hpp>
#include <parx/store/detail/server_core.hpp>
#include <parx/store/dialect.hpp>

namespace parx::inline PARX_ABI {

struct tcp_store_server_options {
  std::string address = {};  ///< a name or number of this host; empty: all addresses
  std::uint16_t port = 0;    ///< 0: a free one, see port()
  /// A socket that listens already (then address and port are not used), -1 for none. The server
  /// owns it from the call on.
  int listening_descriptor = -1;
  /// How to read opcodes 7 and 8 of clients without the hello of torch 2.2: torch_1_13 or
  /// torch_2_1.
  store_dialect legacy_dialect = store_dialect::torch_1_13;
  /// Admits only clients that know it: tcp_stores that were given the same.
  std::optional<job_key> key = std::nullopt;
};

class tcp_store_server {
 public:
  /// Listens when it returns. Throws parx::error(io) where the port cannot be had; the message
  /// names the process that has it. Throws usage_error where this process has it.
  explicit tcp_store_server(tcp_store_server_options options = {})
      : legacy_(options.legacy_dialect),
        key_(std::move(options.key)),
        listener_(listening_socket(options)),
        port_(detail::bound_port(listener_.get())),
        core_([this](std::uint64_t client, std::string_view bytes) { send(client, bytes); }) {
    require(legacy_ == store_dialect::torch_1_13 || legacy_ == store_dialect::torch_2_1,
            "legacy_dialect must be torch_1_13 or torch_2_1");
    if (!poller_.valid() || !stop_.valid()) {
      throw_error(errc::io, "a store's server cannot start: {}", errno_text(errno));
    }
    watch(EPOLL_CTL_ADD, listener_, EPOLLIN, listener_id);
    watch(EPOLL_CTL_ADD, stop_, EPOLLIN, stop_id);
    // The program's signals are not for this thread.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  tcp_store_server(const tcp_store_server&) = delete;
  tcp_store_server& operator=(const tcp_store_server&) = delete;
  ~tcp_store_server() {
    if (!process_.is_this()) {  // a forked copy, which has no such thread
      thread_.detach();
      return;
    }
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

  /// The connections that have made at least one request and are open. A client may have several: a
  /// tcp_store has one, and one more for each watch and each call that waits beside another.
  [[nodiscard]] std::size_t clients() const {
    const std::lock_guard lock(mutex_);
    return members_;
  }

  /// Waits until at most `own_connections` clients are left: the host of a job calls this before it
  /// ends, so that ranks that are still finishing do not lose the store under their feet. False
  /// when the deadline passed first.
  [[nodiscard]] bool wait_for_leavers(std::size_t own_connections, const deadline& limit) const {
    std::unique_lock lock(mutex_);
    const auto gone = [&] { return members_ <= own_connections; };
    if (!limit.is_never()) return member_left_.wait_until(lock, limit.end(), gone);
    member_left_.wait(lock, gone);
    return true;
  }

 private:
  using client_id = std::uint64_t;
  static constexpr client_id listener_id = 0;
  static constexpr client_id stop_id = 1;
  using verdict = detail::store_protocol::verdict;
  using request_parser = detail::store_protocol::request_parser;

  struct peer {
    client_id id;
    descriptor socket;
    request_parser parser;
    std::optional<detail::admission> door;  // until it is admitted, where that takes a proof
    std::string outgoing = {};  // what the socket did not take yet
    std::size_t outgoing_sent = 0;
    bool awaiting_write = false;  // for room for its answers, else for its requests
    bool member = false;
    bool doomed = false;  // closed as soon as the stack is back in guarded()
  };

  static descriptor listening_socket(const tcp_store_server_options& options) {
    if (options.listening_descriptor < 0) return detail::listen_on(options.address, options.port);
    descriptor given(options.listening_descriptor);
    int listens = 0;
    socklen_t length = sizeof listens;
    const bool known = ::getsockopt(given.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0;
    require(known && listens != 0,
            "descriptor {} given to a store's server is not a listening socket",
            options.listening_descriptor);
    ::fcntl(given.get(), F_SETFL, ::fcntl(given.get(), F_GETFL) | O_NONBLOCK);
    ::fcntl(given.get(), F_SETFD, FD_CLOEXEC);
    return given;
  }

  void run() {
    while (true) {
      try {
        if (!serve_ready()) return;
      } catch (const std::exception& failure) {
        log(log_level::error, "the store's server on port {} goes on after: {}", port_,
            failure.what());
      }
    }
  }

  // False when the server is to stop.
  bool serve_ready() {
    std::array<epoll_event, 64> ready;
    const int count = ::epoll_wait(poller_.get(), ready.data(), static_cast<int>(ready.size()),
                                   is_paused_ ? accept_again_after_ms : -1);
    if (is_paused_) accept_all();
    for (int i = 0; i < count; ++i) {
      const client_id id = ready[static_cast<std::size_t>(i)].data.u64;
      if (id == stop_id) return false;
      if (id == listener_id) {
        accept_all();
      } else if (const auto found = clients_.find(id); found != clients_.end()) {
        // No reading before it has taken its answers: flush() goes on with it.
        peer& c = found->second;
        guarded(c, [&] { c.awaiting_write ? flush(c) : read_from(c); });
      }
    }
    return true;
  }

  // Level-triggered: what is not done now is reported again.
  void watch(int change, const descriptor& what, std::uint32_t events, client_id id) const {
    epoll_event wanted{};
    wanted.events = events;
    wanted.data.u64 = id;
    if (::epoll_ctl(poller_.get(), change, what.get(), &wanted) != 0) {
      throw_error(errc::io, "the store's server cannot watch a socket: {}", errno_text(errno));
    }
  }

  void accept_all() {
    while (true) {
      const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (socket >= 0) {
        try {
          admit(descriptor(socket));
        } catch (const std::exception& failure) {
          log(log_level::warn, "the store's server on port {} cannot take a client: {}", port_,
              failure.what());
        }
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return pause_accepting(false);
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        warn_of_shortage(errno);
        return pause_accepting(true);
      } else if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) {
        log(log_level::error, "the store's server on port {} takes no more clients: {}", port_,
            errno_text(errno));
        is_paused_ = false;
        return watch(EPOLL_CTL_DEL, listener_, 0, listener_id);
      }
      // Anything else is the failure of one connection that was waiting (accept(2), "Error
      // handling").
    }
  }

  void warn_of_shortage(int reason) {
    if (std::exchange(warned_of_shortage_, true)) return;
    log(log_level::warn,
        "the store's server on port {} cannot take a client at the moment: {}; with too many open "
        "files, raise `ulimit -n` on this host",
        port_, errno_text(reason));
  }

  void pause_accepting(bool pause) {
    if (std::exchange(is_paused_, pause) == pause) return;
    watch(EPOLL_CTL_MOD, listener_, pause ? 0U : EPOLLIN, listener_id);
  }

  void admit(descriptor socket) {
    detail::set_stream_options(socket.get());
    const client_id id = ++last_id_;
    watch(EPOLL_CTL_ADD, socket, EPOLLIN, id);
    clients_.emplace(id, peer{id, std::move(socket), request_parser(legacy_), new_door()});
  }

  [[nodiscard]] std::optional<detail::admission> new_door() const {
    if (!key_) return std::nullopt;
    return detail::admission(*key_);
  }

  // Whatever goes wrong for one client costs that client only.
  template <typename Action>
  void guarded(peer& c, Action action) {
    try {
      action();
    } catch (const std::exception& failure) {
      log(log_level::warn, "the store's server on port {} hangs up on a client: {}", port_,
          failure.what());
      doom(c);
    }
    for (const client_id each : std::exchange(doomed_, {})) hang_up(each);
  }

  // One piece a turn, so that a client with much to say does not keep the others waiting.
  void read_from(peer& c) {
    const ssize_t got = ::recv(c.socket.get(), incoming_.get(), incoming_size, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got <= 0) return doom(c);
    std::string_view bytes(incoming_.get(), static_cast<std::size_t>(got));
    if (c.door && !admitted(c, bytes)) return;
    c.parser.feed(bytes);
    serve(c);
  }

  bool admitted(peer& c, std::string_view& bytes) {
    std::string answer;
    const auto status = c.door->feed(bytes, answer);
    if (!answer.empty()) send(c.id, answer);
    if (status == detail::admission::status::refused) {
      log(log_level::info,
          "the store's server on port {} refuses a client without the job's secret", port_);
      doom(c);
    }
    if (status != detail::admission::status::admitted) return false;
    c.door.reset();
    return true;
  }

  void serve(peer& c) {
    using detail::store_protocol::parse_status;
    detail::store_protocol::request r;
    while (!c.doomed && !c.awaiting_write) {
      const parse_status status = c.parser.next(r);
      if (status == parse_status::need_more) return;
      if (status == parse_status::bad) {
        log(log_level::debug, "the store's server on port {} hangs up on a stranger: {}", port_,
            c.parser.reason());
        return doom(c);
      }
      count_member(c);
      if (core_.execute(c.id, c.parser.dialect(), r) == verdict::hang_up) {
        log(log_level::info,
            "the store's server on port {} hangs up on a client: its request for {} cannot "
            "be answered",
            port_, r.keys.empty() ? "nothing" : detail::quoted_keys(r.keys));
        doom(c);
      }
    }
  }

  void send(client_id id, std::string_view bytes) {
    const auto found = clients_.find(id);
    if (found == clients_.end() || found->second.doomed) return;
    peer& c = found->second;
    if (!c.awaiting_write) {
      const ssize_t sent = ::send(c.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
      if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return doom(c);
      if (bytes.empty()) return;
    }
    // Only a client that ignores what it asked to be told of can come here.
    if (c.outgoing.size() - c.outgoing_sent > max_outgoing) return doom(c);
    c.outgoing.append(bytes);
    if (!c.awaiting_write) await_room(c);
  }

  void await_room(peer& c) {
    c.awaiting_write = true;
    watch(EPOLL_CTL_MOD, c.socket, EPOLLOUT, c.id);
  }

  void flush(peer& c) {
    const std::string_view rest = std::string_view(c.outgoing).substr(c.outgoing_sent);
    const ssize_t sent = ::send(c.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return doom(c);
    if (sent > 0) c.outgoing_sent += static_cast<std::size_t>(sent);
    if (c.outgoing_sent < c.outgoing.size()) return;
    c.outgoing = {};
    c.outgoing_sent = 0;
    c.awaiting_write = false;
    watch(EPOLL_CTL_MOD, c.socket, EPOLLIN, c.id);
    serve(c);  // requests that came while the answer was on its way
  }

  // A client cannot be closed in the middle of an operation that still counts on it: see guarded().
  void doom(peer& c) {
    c.doomed = true;
    doomed_.push_back(c.id);
  }

  void hang_up(client_id id) {
    const auto gone = clients_.find(id);
    if (gone == clients_.end()) return;
    const bool was_member = gone->second.member;
    clients_.erase(gone);
    core_.forget(id);
    if (!was_member) return;
    const std::lock_guard lock(mutex_);
    --members_;
    member_left_.notify_all();
  }

  void count_member(peer& c) {
    if (c.member) return;
    c.member = true;
    const std::lock_guard lock(mutex_);
    ++members_;
  }

  static constexpr int accept_again_after_ms = 100;
  static constexpr std::size_t incoming_size = 64 * 1024;
  static constexpr std::size_t max_outgoing = detail::store_protocol::server_core::max_answer_bytes;

  store_dialect legacy_;
  std::optional<job_key> key_;
  descriptor listener_;
  std::uint16_t port_;
  bool is_paused_ = false;  // in accepting, for want of descriptors
  bool warned_of_shortage_ = false;
  client_id last_id_ = stop_id;
  std::unique_ptr<char[]> incoming_ = std::make_unique<char[]>(incoming_size);
  std::map<client_id, peer> clients_;
  std::vector<client_id> doomed_;
  detail::store_protocol::server_core core_;
  descriptor poller_{::epoll_create1(EPOLL_CLOEXEC)};
  descriptor stop_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  mutable std::mutex mutex_;
  mutable std::condition_variable member_left_;
  std::size_t members_ = 0;
  detail::own_process process_;
  std::thread thread_;
};

}  // namespace parx
