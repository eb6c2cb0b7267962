// tcp_store_server: hosts a store on a TCP port, for clients of parx and of all releases of PyTorch
// at the same time.
//
// It never blocks on a client. The memory that all clients together can make it use is limited:
// detail/protocol.hpp has the figures, detail/server_loop.hpp what happens at the limits. A
// connection that sends other bytes than requests (port scanners, browsers, TLS) is closed, without
// other effects. A server with a job's key serves only clients that prove to know it.
//
// Threads: construct, destroy and query from any one thread. The constructor starts the server's
// own thread; the destructor stops it, closes every connection and frees the port.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <parx/core/blocked_threads.hpp>
#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/own_process.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/start_thread.hpp>
#include <parx/store/detail/listen.hpp>
#include <parx/store/detail/server_loop.hpp>
#include <parx/store/dialect.hpp>

namespace parx::inline PARX_ABI {

struct tcp_store_server_options {
  std::string address = {};  ///< name or number of this host; empty: all addresses
  std::uint16_t port = 0;    ///< 0: a free one, see port()
  /// A socket that listens already, of which the server takes ownership; address and port are then
  /// ignored. -1 for none.
  int listening_descriptor = -1;
  /// How to read opcodes 7 and 8 of clients without the hello of torch 2.2: torch_1_13 or
  /// torch_2_1.
  store_dialect legacy_dialect = store_dialect::torch_1_13;
  /// Admits only clients that know this key: tcp_stores with the same one.
  std::optional<job_key> key = std::nullopt;
  /// A prefix of keys; empty for none. Where a client creates the key K with it by compare_set, the
  /// server sets "K/gone" once that connection of the client has closed. One key per connection.
  std::string presence_keys = {};
};

class tcp_store_server {
 public:
  /// The server listens when this returns. Throws parx::error(io) where the port is not available;
  /// the message names the process that uses it. Throws usage_error where this process does.
  [[gnu::cold]] explicit tcp_store_server(tcp_store_server_options options = {})
      : loop_(listening_socket(options), checked(options.legacy_dialect), std::move(options.key),
              options.presence_keys.empty() ? "" : formatted("/{}", options.presence_keys),
              members_) {
    thread_ = detail::start_thread("of the job's store", [this] {
      const detail::blocked_threads::mark never_calls;
      loop_.run();
    });
  }
  tcp_store_server(const tcp_store_server&) = delete;
  tcp_store_server& operator=(const tcp_store_server&) = delete;
  ~tcp_store_server() {
    if (!process_.is_this()) {  // a forked child, which has no such thread
      thread_.detach();
      return;
    }
    loop_.stop();
    thread_.join();
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return loop_.port(); }

  /// The open connections that have made at least one request. A client may have several: a
  /// tcp_store has one, plus one for each watch and each concurrent call.
  [[nodiscard]] std::size_t clients() const { return members_.now(); }

  /// Waits until at most `own_connections` clients are left. The process that keeps a job's store
  /// calls this before it ends, for the ranks that still need the store. False when the deadline
  /// passed first.
  [[nodiscard]] bool wait_for_leavers(std::size_t own_connections, const deadline& limit) const {
    return members_.wait_for(own_connections, limit);
  }

 private:
  static store_dialect checked(store_dialect legacy) {
    require(legacy == store_dialect::torch_1_13 || legacy == store_dialect::torch_2_1,
            "legacy_dialect must be torch_1_13 or torch_2_1");
    return legacy;
  }

  static descriptor listening_socket(const tcp_store_server_options& options) {
    if (options.listening_descriptor < 0) {
      return detail::listen_on(detail::without_brackets(options.address), options.port);
    }
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

  detail::member_count members_;
  detail::server_loop loop_;
  detail::own_process process_;
  std::thread thread_;
};

}  // namespace parx
