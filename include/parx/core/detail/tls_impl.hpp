// Definitions of tls.hpp.
//
// OpenSSL reads and writes memory, and the session copies between that memory and the socket:
// OpenSSL's own socket calls would raise SIGPIPE. A record is encrypted once; its bytes may leave
// in several pieces.
#pragma once

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include <parx/core/error.hpp>
#include <parx/core/tls.hpp>

namespace parx::inline PARX_ABI {
namespace detail {

/// The functions of libssl and libcrypto that parx calls, as OpenSSL 1.1.1 and 3 declare them, with
/// void for OpenSSL's types.
struct tls_library {
  using use_psk = int (*)(void* ssl, const void* hash, const unsigned char** identity,
                          std::size_t* size, void** session);
  using find_psk = int (*)(void* ssl, const unsigned char* identity, std::size_t size,
                           void** session);
  const void* (*TLS_method)();
  void* (*SSL_CTX_new)(const void* method);
  long (*SSL_CTX_ctrl)(void* context, int command, long number, void* pointer);
  int (*SSL_CTX_set_ciphersuites)(void* context, const char* names);
  int (*SSL_CTX_set_num_tickets)(void* context, std::size_t count);
  void (*SSL_CTX_set_psk_use_session_callback)(void* context, use_psk function);
  void (*SSL_CTX_set_psk_find_session_callback)(void* context, find_psk function);
  void* (*SSL_new)(void* context);
  void (*SSL_free)(void* ssl);
  void (*SSL_set_bio)(void* ssl, void* to_read, void* to_write);
  void (*SSL_set_verify)(void* ssl, int mode, int (*callback)(int, void*));
  void (*SSL_set_connect_state)(void* ssl);
  void (*SSL_set_accept_state)(void* ssl);
  int (*SSL_read_ex)(void* ssl, void* to, std::size_t size, std::size_t* got);
  int (*SSL_write_ex)(void* ssl, const void* from, std::size_t size, std::size_t* put);
  int (*SSL_is_init_finished)(const void* ssl);
  int (*SSL_get_error)(const void* ssl, int result);
  int (*SSL_set_ex_data)(void* ssl, int index, void* data);
  void* (*SSL_get_ex_data)(const void* ssl, int index);
  const void* (*SSL_CIPHER_find)(void* ssl, const unsigned char* code);
  void* (*SSL_SESSION_new)();
  void (*SSL_SESSION_free)(void* session);
  int (*SSL_SESSION_set1_master_key)(void* session, const unsigned char* key, std::size_t size);
  int (*SSL_SESSION_set_cipher)(void* session, const void* cipher);
  int (*SSL_SESSION_set_protocol_version)(void* session, int version);
  const void* (*BIO_s_mem)();
  void* (*BIO_new)(const void* method);
  int (*BIO_write)(void* bio, const void* from, int size);
  long (*BIO_ctrl)(void* bio, int command, long number, void* pointer);
  unsigned long (*ERR_get_error)();
  void (*ERR_clear_error)();
  const char* (*ERR_reason_error_string)(unsigned long error);
  void* context = nullptr;
  std::string failure;  ///< why it could not be loaded; empty if it was

  static const tls_library& instance() {
    static const tls_library loaded;
    return loaded;
  }

 private:
  tls_library();
  [[nodiscard]] bool finds_all(void* library);
};

/// Constants of OpenSSL's headers, whose macros cannot be loaded.
namespace openssl {
inline constexpr int ctrl_mode = 33, ctrl_min_version = 123, ctrl_max_version = 124;
inline constexpr int tls_1_3 = 0x0304;
inline constexpr long release_buffers = 0x10, moving_buffer = 0x2;
inline constexpr int bio_reset = 1, bio_info = 3;
inline constexpr int error_want_read = 2, verify_peer = 1;
/// TLS_AES_128_GCM_SHA256: the suite of the pre-shared key, which fixes its hash.
inline constexpr unsigned char suite[2] = {0x13, 0x01};
inline constexpr const char* suite_name = "TLS_AES_128_GCM_SHA256";
}  // namespace openssl

inline constexpr std::string_view tls_identity = "parx";

struct tls_state {
  static constexpr std::size_t record = 16 * 1024;
  static constexpr std::size_t most_encrypted = 16 * record;  ///< by one send()

  const tls_library& library;
  int socket;
  mac key;
  void* ssl = nullptr;
  void* incoming = nullptr;  ///< encrypted bytes; `ssl` owns both
  void* outgoing = nullptr;
  std::size_t taken = 0;     ///< bytes of `outgoing` that the socket has taken
  bool holds_last = false;   ///< send() has not reported the last encrypted byte yet
  bool has_more = false;     ///< receive() filled its buffers: more plaintext may wait
  std::string why;           ///< OpenSSL's first error

  tls_state(const tls_library& loaded, int of_socket, const mac& psk)
      : library(loaded), socket(of_socket), key(psk) {}
  tls_state(const tls_state&) = delete;
  tls_state& operator=(const tls_state&) = delete;
  ~tls_state() {
    if (ssl != nullptr) library.SSL_free(ssl);
  }

  /// The pre-shared key as the session that OpenSSL resumes; null where it cannot be made.
  [[nodiscard]] void* session_of_key() const {
    void* const made = library.SSL_SESSION_new();
    const void* const cipher = library.SSL_CIPHER_find(ssl, openssl::suite);
    const bool done = made != nullptr && cipher != nullptr &&
                      library.SSL_SESSION_set1_master_key(made, key.data(), key.size()) == 1 &&
                      library.SSL_SESSION_set_cipher(made, cipher) == 1 &&
                      library.SSL_SESSION_set_protocol_version(made, openssl::tls_1_3) == 1;
    if (done) return made;
    library.SSL_SESSION_free(made);
    return nullptr;
  }
  [[gnu::cold]] static int use_key(void* ssl, const void* /*hash*/, const unsigned char** identity,
                                   std::size_t* size, void** session) {
    const tls_library& loaded = tls_library::instance();
    *identity = reinterpret_cast<const unsigned char*>(tls_identity.data());
    *size = tls_identity.size();
    *session = static_cast<tls_state*>(loaded.SSL_get_ex_data(ssl, 0))->session_of_key();
    return *session != nullptr;
  }
  [[gnu::cold]] static int find_key(void* ssl, const unsigned char* identity, std::size_t size,
                                    void** session) {
    const tls_library& loaded = tls_library::instance();
    const std::string_view wanted(reinterpret_cast<const char*>(identity), size);
    *session = nullptr;
    if (wanted != tls_identity) return 1;
    *session = static_cast<tls_state*>(loaded.SSL_get_ex_data(ssl, 0))->session_of_key();
    return *session != nullptr;
  }

  /// Sends `outgoing`. True when the socket has taken all of it; else errno is set.
  [[nodiscard]] bool flush() {
    char* bytes = nullptr;
    const auto size =
        static_cast<std::size_t>(library.BIO_ctrl(outgoing, openssl::bio_info, 0, &bytes));
    while (taken < size) {
      const auto sent = ::send(socket, bytes + taken, size - taken, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) return false;
      taken += static_cast<std::size_t>(sent);
    }
    if (size > 0) library.BIO_ctrl(outgoing, openssl::bio_reset, 0, nullptr);
    taken = 0;
    return true;
  }
  [[nodiscard]] bool is_flushed() const {
    return library.BIO_ctrl(outgoing, openssl::bio_info, 0, nullptr) == 0;
  }
  /// Moves what the socket has to `incoming`: the number of bytes, 0 at its end, or -1 and errno.
  ssize_t fetch() {
    std::byte chunk[2 * record];
    const auto got = ::recv(socket, chunk, sizeof chunk, MSG_DONTWAIT);
    if (got > 0) library.BIO_write(incoming, chunk, static_cast<int>(got));
    return got;
  }

  /// Repeats an OpenSSL call that needs more input, as long as the socket has some. Returns 1 on
  /// success, 0 if the peer has closed the connection, or -1 and errno.
  template <typename Call>
  int run(Call call) {
    for (;;) {
      library.ERR_clear_error();
      const int result = call();
      if (result == 1) return 1;
      if (library.SSL_get_error(ssl, result) != openssl::error_want_read) return fail();
      if (!flush() && errno != EAGAIN) return -1;  // a flight of the handshake
      const auto got = fetch();
      if (got <= 0) return static_cast<int>(got);
    }
  }
  int fail() {
    const char* const text = library.ERR_reason_error_string(library.ERR_get_error());
    if (why.empty()) why = text != nullptr ? text : "unknown error";
    static_cast<void>(flush());  // the alert that tells the peer
    errno = EPROTO;
    return -1;
  }
};

[[gnu::cold]] PARX_INLINE tls_library::tls_library() {
  for (const char* const name : {"libssl.so.3", "libssl.so.1.1", "libssl.so"}) {
    void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr || !finds_all(library)) continue;
    context = SSL_CTX_new(TLS_method());
    if (context == nullptr) break;
    // One version, one suite, and no session tickets, which would arrive unasked.
    const bool set = SSL_CTX_ctrl(context, openssl::ctrl_min_version, openssl::tls_1_3, nullptr) &&
                     SSL_CTX_ctrl(context, openssl::ctrl_max_version, openssl::tls_1_3, nullptr) &&
                     SSL_CTX_set_ciphersuites(context, openssl::suite_name) == 1 &&
                     SSL_CTX_set_num_tickets(context, 0) == 1;
    if (!set) break;
    SSL_CTX_ctrl(context, openssl::ctrl_mode,
                 openssl::release_buffers | openssl::moving_buffer, nullptr);
    SSL_CTX_set_psk_use_session_callback(context, tls_state::use_key);
    SSL_CTX_set_psk_find_session_callback(context, tls_state::find_key);
    return;
  }
  failure = "OpenSSL's libssl.so.3 (or .1.1), with TLS 1.3, cannot be loaded; install it (Debian: "
            "libssl3)";
}

[[gnu::cold]] PARX_INLINE bool tls_library::finds_all(void* library) {
  const auto find = [library](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        ::dlsym(library, name));  // also in libcrypto, which it depends on
    return function != nullptr;
  };
  return find("TLS_method", TLS_method) && find("SSL_CTX_new", SSL_CTX_new) &&
         find("SSL_CTX_ctrl", SSL_CTX_ctrl) &&
         find("SSL_CTX_set_ciphersuites", SSL_CTX_set_ciphersuites) &&
         find("SSL_CTX_set_num_tickets", SSL_CTX_set_num_tickets) &&
         find("SSL_CTX_set_psk_use_session_callback", SSL_CTX_set_psk_use_session_callback) &&
         find("SSL_CTX_set_psk_find_session_callback", SSL_CTX_set_psk_find_session_callback) &&
         find("SSL_new", SSL_new) && find("SSL_free", SSL_free) &&
         find("SSL_set_bio", SSL_set_bio) &&
         find("SSL_set_verify", SSL_set_verify) &&
         find("SSL_set_connect_state", SSL_set_connect_state) &&
         find("SSL_set_accept_state", SSL_set_accept_state) &&
         find("SSL_read_ex", SSL_read_ex) && find("SSL_write_ex", SSL_write_ex) &&
         find("SSL_is_init_finished", SSL_is_init_finished) &&
         find("SSL_get_error", SSL_get_error) && find("SSL_set_ex_data", SSL_set_ex_data) &&
         find("SSL_get_ex_data", SSL_get_ex_data) && find("SSL_CIPHER_find", SSL_CIPHER_find) &&
         find("SSL_SESSION_new", SSL_SESSION_new) &&
         find("SSL_SESSION_free", SSL_SESSION_free) &&
         find("SSL_SESSION_set1_master_key", SSL_SESSION_set1_master_key) &&
         find("SSL_SESSION_set_cipher", SSL_SESSION_set_cipher) &&
         find("SSL_SESSION_set_protocol_version", SSL_SESSION_set_protocol_version) &&
         find("BIO_s_mem", BIO_s_mem) && find("BIO_new", BIO_new) &&
         find("BIO_write", BIO_write) && find("BIO_ctrl", BIO_ctrl) &&
         find("ERR_get_error", ERR_get_error) && find("ERR_clear_error", ERR_clear_error) &&
         find("ERR_reason_error_string", ERR_reason_error_string);
}

/// Copies up to `room` bytes from the front of `parts`, from `offset` on, to `record`, and advances
/// both. Returns how many.
inline std::size_t gather(std::span<const iovec>& parts, std::size_t& offset, std::byte* record,
                          std::size_t room) noexcept {
  std::size_t filled = 0;
  while (!parts.empty() && filled < room) {
    const iovec& part = parts.front();
    const std::size_t size = std::min(part.iov_len - offset, room - filled);
    if (size > 0) {
      std::memcpy(record + filled, static_cast<const std::byte*>(part.iov_base) + offset, size);
    }
    filled += size;
    offset += size;
    if (offset < part.iov_len) continue;
    parts = parts.subspan(1);
    offset = 0;
  }
  return filled;
}

}  // namespace detail

[[gnu::cold]] PARX_INLINE tls_session::tls_session(int socket, tls_side side, const mac& key)
    : state_(std::make_unique<detail::tls_state>(detail::tls_library::instance(), socket, key)) {
  const detail::tls_library& library = state_->library;
  if (!library.failure.empty()) throw_error(errc::io, "cannot encrypt: {}", library.failure);
  state_->ssl = library.SSL_new(library.context);
  state_->incoming = library.BIO_new(library.BIO_s_mem());
  state_->outgoing = library.BIO_new(library.BIO_s_mem());
  if (state_->ssl == nullptr || state_->incoming == nullptr || state_->outgoing == nullptr) {
    throw_error(errc::io, "cannot encrypt: OpenSSL has no memory for another connection");
  }
  library.SSL_set_bio(state_->ssl, state_->incoming, state_->outgoing);
  library.SSL_set_ex_data(state_->ssl, 0, state_.get());
  if (side == tls_side::server) {
    library.SSL_set_accept_state(state_->ssl);
    return;
  }
  library.SSL_set_connect_state(state_->ssl);
  // Nobody vouches for certificates here: a peer that shows one in place of the key is refused.
  library.SSL_set_verify(state_->ssl, detail::openssl::verify_peer, nullptr);
}
PARX_INLINE tls_session::tls_session(tls_session&&) noexcept = default;
PARX_INLINE tls_session& tls_session::operator=(tls_session&&) noexcept = default;
PARX_INLINE tls_session::~tls_session() = default;

PARX_INLINE ssize_t tls_session::send(std::span<const iovec> parts) noexcept {
  detail::tls_state& now = *state_;
  if (!now.flush()) return -1;
  if (std::exchange(now.holds_last, false)) return 1;
  std::byte record[detail::tls_state::record];
  std::size_t offset = 0, encrypted = 0;
  while (encrypted < detail::tls_state::most_encrypted) {
    const std::size_t size = detail::gather(parts, offset, record, sizeof record);
    if (size == 0) break;
    std::size_t put = 0;
    const int result =
        now.run([&] { return now.library.SSL_write_ex(now.ssl, record, size, &put); });
    if (result == 0) errno = EPIPE;
    if (result != 1 && encrypted == 0) return -1;
    if (result != 1) break;
    encrypted += put;
  }
  if (now.flush()) return static_cast<ssize_t>(encrypted);
  if (errno != EAGAIN) return -1;
  now.holds_last = true;
  if (encrypted > 1) return static_cast<ssize_t>(encrypted - 1);
  return -1;
}

PARX_INLINE ssize_t tls_session::receive(std::span<const iovec> parts) noexcept {
  detail::tls_state& now = *state_;
  ssize_t received = 0;
  for (const iovec& part : parts) {
    for (std::size_t filled = 0; filled < part.iov_len;) {
      std::size_t got = 0;
      const int result = now.run([&] {
        return now.library.SSL_read_ex(now.ssl, static_cast<std::byte*>(part.iov_base) + filled,
                                       part.iov_len - filled, &got);
      });
      if (!now.is_flushed()) static_cast<void>(now.flush());  // the handshake's last flight
      if (result != 1) {
        now.has_more = false;
        return received > 0 ? received : result;
      }
      filled += got;
      received += static_cast<ssize_t>(got);
    }
  }
  now.has_more = true;
  return received;
}

PARX_INLINE bool tls_session::may_hold_bytes() const noexcept { return state_->has_more; }

PARX_INLINE short tls_session::events(short wanted) const noexcept {
  const bool to_receive = (wanted & POLLIN) != 0, to_send = (wanted & POLLOUT) != 0;
  const bool is_open = state_->library.SSL_is_init_finished(state_->ssl) == 1;
  const bool sends = !state_->is_flushed() || (to_send && is_open);
  const bool receives = to_receive || (to_send && !is_open);
  return static_cast<short>((receives ? POLLIN : 0) | (sends ? POLLOUT : 0));
}

PARX_INLINE std::string tls_session::reason() const {
  return "TLS ended the connection: " + state_->why;
}

PARX_INLINE const std::string& why_no_tls() { return detail::tls_library::instance().failure; }

}  // namespace parx
