// tcp_store_server: hosts a store on a TCP port for clients of parx and of every release of
// PyTorch, all at once.
//
// One thread on Asio used as a reactor: it says which sockets are ready, the system calls are
// direct. The thread never blocks on a client: requests are parsed from whatever bytes have come,
// answers that do not fit the socket are queued, and a client that does not take its answers is not
// read from. Bytes that are no request (scanners, browsers, TLS) cost their connection and nothing
// else.
//
// Threads: construct, destroy and ask from any one thread; the constructor starts the server's own
// thread, the destructor stops it, closes every connection and frees the port.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/log.hpp>
#include <parx/store/detail/connect.hpp>
#include <parx/store/detail/listen.hpp>
#include <parx/store/detail/request_parser.hpp>
#include <parx/store/detail/server_core.hpp>
#include <parx/store/dialect.hpp>

namespace parx {

struct tcp_store_server_options {
  std::string address = {};  ///< a name or number of this host; empty: all addresses
  std::uint16_t port = 0;    ///< 0: a free one, see port()
  /// A socket that listens already (then address and port are not used), -1 for none. The server
  /// owns it from the call on.
  int listening_descriptor = -1;
  /// How to read opcodes 7 and 8 of clients without the hello of torch 2.2: torch_1_13 or
  /// torch_2_1.
  store_dialect legacy_dialect = store_dialect::torch_1_13;
};

class tcp_store_server {
 public:
  /// Listens when it returns. Throws parx::error(io) where the port cannot be had; the message
  /// names the process that has it.
  explicit tcp_store_server(tcp_store_server_options options = {})
      : listener_(io_, listening_socket(options).release()),
        port_(detail::bound_port(listener_.native_handle())),
        legacy_(options.legacy_dialect),
        core_([this](std::uint64_t client, std::string_view bytes) { send(client, bytes); }) {
    require(legacy_ == store_dialect::torch_1_13 || legacy_ == store_dialect::torch_2_1,
            "legacy_dialect must be torch_1_13 or torch_2_1");
    await_client();
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
    io_.stop();
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
  // With the context's own executor, not Asio's type-erased one, this file compiles a fifth faster.
  using executor = boost::asio::io_context::executor_type;
  using stream = boost::asio::posix::basic_stream_descriptor<executor>;
  using timer = boost::asio::basic_waitable_timer<std::chrono::steady_clock,
                                                  boost::asio::wait_traits<std::chrono::steady_clock>, executor>;
  using verdict = detail::store_protocol::verdict;

  struct peer {
    peer(boost::asio::io_context& io, int accepted, client_id number, store_dialect legacy)
        : socket(io, accepted), id(number), parser(legacy) {}
    stream socket;
    client_id id;
    detail::store_protocol::request_parser parser;
    std::string outgoing;  // what the socket did not take yet
    std::size_t outgoing_sent = 0;
    bool awaiting_read = false;
    bool awaiting_write = false;
    bool member = false;
    bool doomed = false;  // closed as soon as the stack is back in the handler
  };
  using peer_ptr = std::shared_ptr<peer>;

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
        io_.run();
        return;
      } catch (const std::exception& failure) {
        log(log_level::error, "the store's server on port {} goes on after: {}", port_,
            failure.what());
      }
    }
  }

  void await_client() {
    listener_.async_wait(stream::wait_read, [this](const boost::system::error_code& code) {
      if (code) return;
      accept_all();
    });
  }

  void accept_all() {
    while (true) {
      const int socket =
          ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (socket >= 0) {
        try {
          admit(descriptor(socket));
        } catch (const std::exception& failure) {
          log(log_level::warn, "the store's server on port {} cannot take a client: {}", port_,
              failure.what());
        }
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return await_client();
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        return pause_accepting(errno);
      } else if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) {
        log(log_level::error, "the store's server on port {} takes no more clients: {}", port_,
            errno_text(errno));
        return;
      }
      // Anything else is the failure of one connection that was waiting (accept(2), "Error
      // handling").
    }
  }

  void pause_accepting(int reason) {
    if (!warned_of_shortage_) {
      warned_of_shortage_ = true;
      log(log_level::warn,
          "the store's server on port {} cannot take a client at the moment: {}; with too "
          "many open files, raise `ulimit -n` on this host",
          port_, errno_text(reason));
    }
    accept_again_.expires_after(std::chrono::milliseconds(100));
    accept_again_.async_wait([this](const boost::system::error_code& code) {
      if (!code) accept_all();
    });
  }

  void admit(descriptor socket) {
    detail::configure_socket(socket.get());
    auto c = std::make_shared<peer>(io_, socket.get(), ++last_id_, legacy_);
    (void)socket.release();
    clients_.emplace(c->id, c);
    await_request(c);
  }

  void await_request(const peer_ptr& c) {
    if (std::exchange(c->awaiting_read, true)) return;
    c->socket.async_wait(stream::wait_read, [this, c](const boost::system::error_code& code) {
      c->awaiting_read = false;
      if (code || !c->socket.is_open()) return;
      // Not before it has taken its answers: flush() goes on with reading.
      if (!c->awaiting_write) guarded(c, [&] { read_from(c); });
    });
  }

  // Whatever goes wrong for one client costs that client only.
  template <typename Action>
  void guarded(const peer_ptr& c, Action action) {
    try {
      action();
    } catch (const std::exception& failure) {
      log(log_level::warn, "the store's server on port {} hangs up on a client: {}", port_,
          failure.what());
      c->doomed = true;
    }
    if (c->doomed) hang_up(c);
    while (!doomed_.empty()) {
      const peer_ptr other = std::move(doomed_.back());
      doomed_.pop_back();
      hang_up(other);
    }
  }

  // One piece a turn, so that a client with much to say does not keep the others waiting.
  void read_from(const peer_ptr& c) {
    const ssize_t got = ::recv(c->socket.native_handle(), incoming_.get(), incoming_size, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
      return await_request(c);
    if (got <= 0) {
      c->doomed = true;
      return;
    }
    c->parser.feed({incoming_.get(), static_cast<std::size_t>(got)});
    serve(c);
  }

  void serve(const peer_ptr& c) {
    using detail::store_protocol::parse_status;
    detail::store_protocol::request r;
    while (!c->doomed && !c->awaiting_write) {
      const parse_status status = c->parser.next(r);
      if (status == parse_status::need_more) return await_request(c);
      if (status == parse_status::bad) {
        log(log_level::debug, "the store's server on port {} hangs up on a stranger: {}", port_,
            c->parser.reason());
        c->doomed = true;
        return;
      }
      count_member(*c);
      if (core_.execute(c->id, c->parser.dialect(), r) == verdict::hang_up) {
        log(log_level::info,
            "the store's server on port {} hangs up on a client: its request for {} cannot "
            "be answered",
            port_, r.keys.empty() ? "nothing" : detail::quoted_keys(r.keys));
        c->doomed = true;
      }
    }
  }

  void send(client_id id, std::string_view bytes) {
    const auto found = clients_.find(id);
    if (found == clients_.end() || found->second->doomed) return;
    peer& c = *found->second;
    if (!c.awaiting_write) {
      const ssize_t sent =
          ::send(c.socket.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
      if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        return doom(found->second);
      if (bytes.empty()) return;
    }
    // Only a client that ignores what it asked to be told of can come here.
    if (c.outgoing.size() - c.outgoing_sent > max_outgoing) return doom(found->second);
    c.outgoing.append(bytes);
    if (!c.awaiting_write) await_room(found->second);
  }

  void await_room(const peer_ptr& c) {
    c->awaiting_write = true;
    c->socket.async_wait(stream::wait_write, [this, c](const boost::system::error_code& code) {
      if (!code && c->socket.is_open()) guarded(c, [&] { flush(c); });
    });
  }

  void flush(const peer_ptr& c) {
    const std::string_view rest = std::string_view(c->outgoing).substr(c->outgoing_sent);
    const ssize_t sent = ::send(c->socket.native_handle(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      c->doomed = true;
      return;
    }
    if (sent > 0) c->outgoing_sent += static_cast<std::size_t>(sent);
    if (c->outgoing_sent < c->outgoing.size()) return await_room(c);
    c->outgoing = {};
    c->outgoing_sent = 0;
    c->awaiting_write = false;
    serve(c);  // requests that came while the answer was on its way
  }

  // A client cannot be closed in the middle of an operation that still counts on it.
  void doom(const peer_ptr& c) {
    c->doomed = true;
    doomed_.push_back(c);
  }

  void hang_up(const peer_ptr& c) {
    if (clients_.erase(c->id) == 0) return;
    core_.forget(c->id);
    boost::system::error_code ignored;
    c->socket.close(ignored);
    if (!c->member) return;
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

  static constexpr std::size_t incoming_size = 64 * 1024;
  static constexpr std::size_t max_outgoing = detail::store_protocol::server_core::max_answer_bytes;

  boost::asio::io_context io_{1};
  stream listener_;
  std::uint16_t port_;
  store_dialect legacy_;
  timer accept_again_{io_};
  bool warned_of_shortage_ = false;
  client_id last_id_ = 0;
  std::unique_ptr<char[]> incoming_ = std::make_unique<char[]>(incoming_size);
  std::map<client_id, peer_ptr> clients_;
  std::vector<peer_ptr> doomed_;
  detail::store_protocol::server_core core_;

  mutable std::mutex mutex_;
  mutable std::condition_variable member_left_;
  std::size_t members_ = 0;
  std::thread thread_;
};

}  // namespace parx
