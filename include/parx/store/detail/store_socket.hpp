// store_socket: the socket of a store's client or server; plain until encrypt(), then TLS.
// Does not block. Threads: one at a time.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/tls.hpp>

namespace parx::inline PARX_ABI::detail {

class store_socket {
 public:
  store_socket() = default;
  explicit store_socket(descriptor socket) : socket_(std::move(socket)) {}

  [[nodiscard]] const descriptor& socket() const noexcept { return socket_; }
  void close() noexcept {
    tls_.reset();
    socket_.close();
  }

  /// Encrypts everything from now on, in both directions. No bytes may be in flight. Throws
  /// errc::io where libssl cannot be loaded.
  void encrypt(tls_side side, const mac& key) { tls_.emplace(socket_.get(), side, key); }

  /// As send(2) and recv(2). Bytes that were not sent must be passed again, see tls_session.
  ssize_t put(std::string_view bytes) noexcept {
    if (!tls_) return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    return tls_->send({&part, 1});
  }
  ssize_t take(char* to, std::size_t size) noexcept {
    if (!tls_) return ::recv(socket_.get(), to, size, 0);
    const iovec part{to, size};
    return tls_->receive({&part, 1});
  }

  /// The events to poll for before the next take() or put().
  [[nodiscard]] short events_to_take() const noexcept {
    return tls_ ? tls_->events(POLLIN) : short{POLLIN};
  }
  [[nodiscard]] short events_to_put() const noexcept {
    return tls_ ? tls_->events(POLLOUT) : short{POLLOUT};
  }
  /// Whether TLS may hold bytes that were read from the socket already, which poll does not report.
  [[nodiscard]] bool may_hold_bytes() const noexcept { return tls_ && tls_->may_hold_bytes(); }

  /// The text for a put() or take() that has failed with this errno.
  [[nodiscard]] std::string reason(int error_number) const {
    return tls_ && error_number == EPROTO ? tls_->reason() : errno_text(error_number);
  }

 private:
  descriptor socket_;
  std::optional<tls_session> tls_;
};

}  // namespace parx::detail
