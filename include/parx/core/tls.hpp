// tls_session: one encrypted connection, TLS 1.3 by OpenSSL's libssl, over a socket that the caller
// owns.
//
// Both sides know a pre-shared key (RFC 8446, 2.2) and use no certificates. A fresh Diffie-Hellman
// exchange goes into the session key, so that whoever learns the pre-shared key later cannot
// decrypt a recording. The library is loaded when it is first needed, as libcrypto is. Nothing
// blocks. Threads: one at a time.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>

#include <parx/core/abi.hpp>
#include <parx/core/hmac.hpp>

namespace parx::inline PARX_ABI {

/// Why this process cannot encrypt, and what to do; empty where it can.
[[nodiscard]] const std::string& why_no_tls();

namespace detail {
/// OpenSSL's objects of a connection.
struct tls_state;
}  // namespace detail

enum class tls_side : bool { client, server };

class tls_session {
 public:
  /// `socket` is non-blocking and must outlive the session. Both sides give the same key. Throws
  /// errc::io where libssl cannot be loaded.
  tls_session(int socket, tls_side side, const mac& key);
  tls_session(tls_session&&) noexcept;
  tls_session& operator=(tls_session&&) noexcept;
  ~tls_session();

  /// Like non-blocking sendmsg(2) and recvmsg(2) of plaintext: the number of bytes, or -1 and
  /// errno; for EPROTO see reason(). While the socket has not taken all that send() has encrypted,
  /// send() reports one byte less: the caller calls again with the rest of the same bytes.
  ssize_t send(std::span<const iovec> parts) noexcept;
  ssize_t receive(std::span<const iovec> parts) noexcept;

  /// Whether receive() may return bytes although none waits in the socket.
  [[nodiscard]] bool may_hold_bytes() const noexcept;
  /// The poll(2) events to wait for in order to receive (POLLIN of `wanted`) and to send (POLLOUT).
  [[nodiscard]] short events(short wanted) const noexcept;
  /// Why the connection ended with EPROTO.
  [[nodiscard]] std::string reason() const;

 private:
  std::unique_ptr<detail::tls_state> state_;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/tls_impl.hpp>
#endif
