// tls_session: one encrypted connection, TLS 1.3 by OpenSSL's libssl, over a socket that the caller
// owns.
//
// Both sides know a secret of this connection and show no certificates: it is the pre-shared key
// (RFC 8446, 2.2), joined with a fresh Diffie-Hellman exchange, so that whoever learns it later
// cannot read what was recorded. The library is loaded when it is first needed, as libcrypto is.
// Nothing blocks. Threads: one at a time.
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

enum class tls_side : bool { client, server };

/// What OpenSSL keeps of a connection.
struct tls_state;

class tls_session {
 public:
  /// `socket` does not block and outlives the session. Both sides give the same key. Throws
  /// errc::io where libssl cannot be had.
  tls_session(int socket, tls_side side, const mac& key);
  tls_session(tls_session&&) noexcept;
  tls_session& operator=(tls_session&&) noexcept;
  ~tls_session();

  /// As sendmsg(2) and recvmsg(2) of plain bytes, without waiting: how many, or -1 and errno; for
  /// EPROTO see reason(). Of what cannot leave at once send() leaves the last byte untold until all
  /// has left: the caller offers the rest of the same bytes again.
  ssize_t send(std::span<const iovec> parts) noexcept;
  ssize_t receive(std::span<const iovec> parts) noexcept;

  /// Whether receive() may have bytes although none waits in the socket.
  [[nodiscard]] bool may_hold_bytes() const noexcept;
  /// What to poll the socket for by who wants to receive, and to send.
  [[nodiscard]] short events(bool to_receive, bool to_send) const noexcept;
  /// Why the connection ended with EPROTO.
  [[nodiscard]] std::string reason() const;

 private:
  std::unique_ptr<tls_state> state_;
};

}  // namespace detail
}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/tls_impl.hpp>
#endif
