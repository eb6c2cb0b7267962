// mutual_authentication: mutual authentication of a store's server and its clients by the job's
// key.
//
//   client: "PXAUTH1\n" and a nonce    server: a nonce    client: its proof    server: its proof
//
// A proof is a MAC over the side's purpose and both nonces, 32 bytes each, so that a recorded
// exchange cannot be replayed. The client proves first, so that an unauthenticated client never
// gets a MAC with which it could test guessed secrets. With a key that encrypts, TLS follows, bound
// to the nonces. 'P' is no opcode of PyTorch's protocol, so a server without a key closes the
// connection. The class is the server's side, without I/O; it buffers at most one message.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <parx/core/deadline.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/store/detail/connection.hpp>
#include <parx/store/detail/failure.hpp>
#include <parx/store/detail/protocol.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::string_view authentication_magic = "PXAUTH1\n";
/// Sent to a client that does not authenticate, in place of its ping's nonce.
inline constexpr std::uint32_t key_is_missing = 0x59454b50;  // "PKEY"

using authentication_nonce = std::array<unsigned char, 32>;

[[nodiscard]] inline mac proof_of(const job_key& key, std::string_view side,
                                  const authentication_nonce& client,
                                  const authentication_nonce& server) {
  return key.sign(side, {job_key::view(client), job_key::view(server)});
}

/// The key of the TLS that follows.
[[nodiscard]] inline mac tls_key_of(const job_key& key, const authentication_nonce& client,
                                    const authentication_nonce& server) {
  return proof_of(key, "store tls", client, server);
}

class mutual_authentication {
 public:
  enum class status { need_more, admitted, refused };

  explicit mutual_authentication(const job_key& key) : key_(&key) {}

  /// Consumes the exchange's bytes from the front of `bytes`; appends the reply to `answer`.
  [[nodiscard, gnu::cold]] status feed(std::string_view& bytes, std::string& answer) {
    while (!bytes.empty()) {
      const std::size_t wanted = greeted_ ? sizeof(mac) : sizeof buffer_;
      const std::size_t part = std::min(wanted - received_, bytes.size());
      std::copy_n(bytes.begin(), part, buffer_.begin() + static_cast<std::ptrdiff_t>(received_));
      received_ += part;
      bytes.remove_prefix(part);
      const std::size_t known = std::min(received_, authentication_magic.size());
      if (!greeted_ && !authentication_magic.starts_with(std::string_view(buffer_.data(), known))) {
        store_protocol::put(answer, key_is_missing);
        return status::refused;
      }
      if (received_ < wanted) break;
      received_ = 0;
      if (greeted_) return check_proof(answer);
      greeted_ = true;
      std::memcpy(client_.data(), buffer_.data() + authentication_magic.size(), client_.size());
      server_ = random_bytes<sizeof(authentication_nonce)>();
      answer.append(job_key::view(server_));
    }
    return status::need_more;
  }

  /// To be called once the client is admitted.
  [[nodiscard]] mac tls_key() const { return tls_key_of(*key_, client_, server_); }

 private:
  status check_proof(std::string& answer) const {
    mac proof;
    std::memcpy(proof.data(), buffer_.data(), proof.size());
    if (!equal_in_constant_time(proof, proof_of(*key_, "store client", client_, server_))) {
      return status::refused;
    }
    answer.append(job_key::view(proof_of(*key_, "store server", client_, server_)));
    return status::admitted;
  }

  const job_key* key_;
  std::array<char, authentication_magic.size() + sizeof(authentication_nonce)> buffer_{};
  std::size_t received_ = 0;
  bool greeted_ = false;
  authentication_nonce client_{};
  authentication_nonce server_{};
};

/// Whether the server has admitted this process before. A server that has and that closes the
/// connection during the exchange has ended; it does not lack the secret.
enum class encounter { first, later };

/// The client's side. Throws store_failure: protocol where the server does not know the key.
[[gnu::cold]] inline void be_admitted(connection& server, const job_key& key, encounter which,
                                      const deadline& limit) {
  const auto mine = random_bytes<sizeof(authentication_nonce)>();
  server.send(std::string(authentication_magic).append(job_key::view(mine)), limit);
  const auto theirs = [&] {
    try {
      return server.receive<authentication_nonce>(limit);
    } catch (store_failure& failure) {
      if (failure.code == errc::peer_lost && which == encounter::first) {
        failure.reason +=
            " at this process's greeting: its process has no secret (PARX_SECRET, "
            "PARX_SECRET_FILE), is none of parx, or has just ended";
      }
      throw;
    }
  }();
  const mac proof = proof_of(key, "store client", mine, theirs);
  server.send(job_key::view(proof), limit);
  try {
    if (equal_in_constant_time(server.receive<mac>(limit),
                               proof_of(key, "store server", mine, theirs))) {
      if (key.encrypts()) server.encrypt(tls_key_of(key, mine, theirs));
      return;
    }
  } catch (const store_failure& failure) {
    if (failure.code != errc::peer_lost || which == encounter::later) throw;
  }
  throw store_failure{errc::protocol,
                      "the process that keeps it has another secret: all ranks of a job need the "
                      "same PARX_SECRET or PARX_SECRET_FILE, the same PARX_RUN_ID and the same "
                      "PARX_TLS. Is another job using this address and port?"};
}

}  // namespace parx::detail
