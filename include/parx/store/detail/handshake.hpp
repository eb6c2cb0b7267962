// Connecting to a TCPStore server: connect, prove to know the job's key, greet, probe the dialect.
//
// A server with a job's key is one of parx and is not probed. The probe takes a new connection for
// each step, because a server closes a connection on an unknown request:
//
// 1. Magic + ping in one segment: echoed by torch 2.5 and later and by parx. A torch 1.13 server
//    reads the ten bytes as a SET of absurd length and closes the connection, nothing else.
// 2. The byte 06 is GETNUMKEYS in the dialects without magic: eight bytes come back.
// 3. Magic + four times GETNUMKEYS of torch 2.2. Never the magic alone: a torch 1.13 server would
//    block inside reading it and freeze every other client of that store.
// 4. The byte 0b is CANCEL_WAIT for torch 2.1, which answers 01; torch 1.13 closes.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/stream_options.hpp>
#include <parx/store/detail/connect.hpp>
#include <parx/store/detail/connection.hpp>
#include <parx/store/detail/failure.hpp>
#include <parx/store/detail/mutual_authentication.hpp>
#include <parx/store/detail/protocol.hpp>
#include <parx/store/dialect.hpp>

namespace parx::inline PARX_ABI::detail {

struct server_address {
  std::string host;
  std::uint16_t port = 0;
  std::optional<job_key> key = {};  ///< required by the server
};

/// Connects once. Throws store_failure{peer_lost} where no address accepts, timeout where none has
/// answered before the limit, protocol where the server does not know the key.
[[nodiscard, gnu::cold]] inline connection dial(const server_address& server, const deadline& limit,
                                                encounter which = encounter::first) {
  std::string reason;
  const address_list addresses = resolve(server.host, server.port, reason);
  descriptor socket = addresses ? connect_any(addresses.get(), limit, reason) : descriptor{};
  if (!socket.valid()) {
    throw store_failure{limit.passed() ? errc::timeout : errc::peer_lost, reason, false};
  }
  set_stream_options(socket.get());
  connection opened(std::move(socket));
  if (server.key) be_admitted(opened, *server.key, which, limit);
  return opened;
}

enum class greeting { magic_only, magic_and_ping };

[[nodiscard, gnu::cold]] inline std::string hello(greeting kind, std::uint32_t nonce = 0) {
  using namespace store_protocol;
  std::string bytes;
  encode(bytes, store_dialect::torch_2_5, {.op = operation::validate, .number = magic});
  if (kind == greeting::magic_and_ping) {
    encode(bytes, store_dialect::torch_2_5, {.op = operation::ping, .number = nonce});
  }
  return bytes;
}

/// Sends the hello of a known dialect, and checks the answer where there is one.
[[gnu::cold]] inline void greet(connection& server, store_dialect dialect, const deadline& limit) {
  if (dialect == store_dialect::torch_2_2) server.send(hello(greeting::magic_only), limit);
  if (dialect != store_dialect::torch_2_5) return;
  const auto nonce = static_cast<std::uint32_t>(::getpid());
  server.send(hello(greeting::magic_and_ping, nonce), limit);
  const auto echo = server.receive<std::uint32_t>(limit);
  if (echo == key_is_missing) {
    throw store_failure{errc::protocol,
                        "the job there has a secret, and this process has none: give it the same "
                        "PARX_SECRET or PARX_SECRET_FILE"};
  }
  if (echo != nonce) {
    throw store_failure{errc::protocol,
                        "something else than a store answers there; check the port"};
  }
}

struct greeted {
  connection server;
  store_dialect dialect = store_dialect::torch_2_5;
};

/// Probes for the dialect. Throws store_failure; with peer_lost it makes sense to try again.
[[nodiscard, gnu::cold]] inline greeted probe(const server_address& address,
                                              const deadline& limit) {
  // Whether the server answers `question` with that many bytes within a second.
  const auto answers = [&](connection& server, std::string_view question, std::size_t bytes) {
    const auto patience = deadline::after(std::min(limit.remaining(), deadline::duration(1000)));
    try {
      server.send(question, patience);
      return server.available(bytes, patience);
    } catch (const store_failure&) {
      return false;
    }
  };
  connection server = dial(address, limit);
  try {
    greet(server, store_dialect::torch_2_5, limit);
    return {std::move(server), store_dialect::torch_2_5};
  } catch (const store_failure& failure) {
    if (failure.code != errc::peer_lost) throw;
  }
  server = dial(address, limit);
  if (!answers(server, "\x06", 8)) {
    server = dial(address, limit);
    const std::string question = hello(greeting::magic_only) + "\x07\x07\x07\x07";
    if (!answers(server, question, 32)) {
      throw store_failure{errc::peer_lost,
                          "the server accepts connections but answers in no dialect of "
                          "PyTorch's TCPStore"};
    }
    for (int i = 0; i < 4; ++i) (void)server.receive<std::uint64_t>(limit);
    return {std::move(server), store_dialect::torch_2_2};
  }
  server = dial(address, limit);
  if (answers(server, "\x0b", 1) && server.receive<std::uint8_t>(limit) == 1) {
    return {std::move(server), store_dialect::torch_2_1};
  }
  return {dial(address, limit), store_dialect::torch_1_13};
}

/// The first connection to a server. Retries until the deadline, as the server may not have started
/// yet; a wrong key or protocol is thrown at once. So is a process that for `silence` has accepted
/// connections and not answered as a store: if it is another program, the server will never start.
[[nodiscard, gnu::cold]] inline greeted meet(
    const server_address& address, std::optional<store_dialect> dialect,
    const std::string& server_name, const deadline& limit,
    deadline::duration silence = deadline::duration::max()) {
  retry_loop retry(server_name, limit);
  deadline answer = deadline::unset();  // since the first connection that was accepted
  while (true) {
    if (answer.is_unset()) answer = deadline::after(silence);
    const deadline each = deadline::after(std::min(limit.remaining(), answer.remaining()));
    try {
      if (address.key) dialect = store_dialect::torch_2_5;
      if (!dialect) return probe(address, each);
      connection server = dial(address, each);
      greet(server, *dialect, each);
      return {std::move(server), *dialect};
    } catch (const store_failure& failure) {
      if (failure.code == errc::protocol) throw;
      if (!failure.accepted) answer = deadline::unset();
      if (answer.passed() && !limit.passed()) {
        throw store_failure{
            errc::protocol,
            formatted("a process accepts connections there, but none has answered as a store for "
                      "{:.0f} s ({}): another program has this port, or the process that hosts "
                      "the store, usually rank 0, is stopped",
                      answer.elapsed_seconds(), failure.reason)};
      }
      retry.failed(failure.reason);
    }
  }
}

}  // namespace parx::detail
