// For parx_doctor host: whether the nodes reach each other, and how far their clocks are apart.
//
// The first node runs a store; the others connect to it, as the ranks of a job would. Each listens
// on a port of its own. The first node connects to each of them, each to the next one. A node that
// cannot take part has said all else about itself before.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <parx/core/deadline.hpp>
#include <parx/core/json.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/unix_time.hpp>
#include <parx/slurm/host_facts.hpp>
#include <parx/store.hpp>

namespace examples {

/// Who takes part: this node's place among `nodes`, and where the first one listens.
struct exchange_place {
  std::size_t index = 0;
  std::vector<std::string> nodes;
  std::string first_host;
  std::uint16_t port = 0;
};

namespace detail {

/// Why no connection to this address can be made; empty: it can.
inline std::string connect_problem(const std::string& address, std::uint16_t port,
                                   parx::deadline limit) {
  try {
    const auto to = parx::detail::socket_address::tcp(address, port);
    const parx::descriptor socket = parx::detail::stream_socket(to.data()->sa_family);
    if (!socket.valid()) return parx::errno_text(errno);
    if (::connect(socket.get(), to.data(), to.length) == 0) return {};
    if (errno != EINPROGRESS) return parx::errno_text(errno);
    pollfd polled{socket.get(), POLLOUT, 0};
    const int ready = ::poll(&polled, 1, limit.poll_timeout());
    if (ready == 0) return fmt::format("{}: no answer", parx::detail::with_port(address, port));
    const int why = parx::detail::connection_error(socket.get());
    return why == 0 ? std::string()
                    : parx::detail::with_port(address, port) + ": " + parx::errno_text(why);
  } catch (const parx::error& failure) {
    return parx::text_of(failure);
  }
}

/// A socket that listens on a free port of all addresses of the family of `address`.
inline parx::descriptor listening_socket(const std::string& address, std::uint16_t& port) {
  const bool v6 = address.find(':') != address.npos;
  const auto any = parx::detail::socket_address::tcp(v6 ? "::" : "0.0.0.0", 0);
  parx::descriptor socket = parx::detail::stream_socket(any.data()->sa_family);
  if (!socket.valid() || ::bind(socket.get(), any.data(), any.length) != 0 ||
      ::listen(socket.get(), 64) != 0) {
    parx::throw_error(parx::errc::io, "no port to listen on: {}", parx::errno_text(errno));
  }
  port = parx::detail::socket_address::of(socket.get()).port();
  return socket;
}

inline std::string key(const char* what, std::size_t index) {
  return fmt::format("{}/{}", what, index);
}

/// One try to reach another node takes no longer.
inline constexpr std::chrono::milliseconds connect_limit{1000};
/// The clock is compared as often; the shortest round counts.
inline constexpr int clock_rounds = 3;

/// The first node's part: tells each node whether it can be reached, whom to try next, and the
/// time.
inline void serve_nodes(parx::store& board, const exchange_place& place, parx::deadline limit) {
  std::vector<std::optional<parx::json::value>> others(place.nodes.size());
  for (std::size_t i = 0; i < place.nodes.size(); ++i) {
    try {
      others[i] = parx::json::parse(board.get(key("node", i), limit));
    } catch (const parx::error&) {
      // Not there in time; the deadline has passed, and the rest of the loop only looks.
    }
  }
  const auto end = parx::deadline::after(std::chrono::seconds(5));
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (!others[i]) continue;
    parx::json::object order{{"from_first_problem", ""}, {"next", ""}};
    const auto address = [](const parx::json::value& node) { return node.at("address").text(); };
    const auto port = [](const parx::json::value& node) {
      return node.at("port").as<std::uint16_t>();
    };
    if (i != 0) {
      order["from_first_problem"] = connect_problem(address(*others[i]), port(*others[i]),
                                                    parx::deadline::after(connect_limit));
    }
    const std::size_t next = (i + 1) % others.size();
    if (next != i && others[next]) {
      order["next"] = place.nodes[next];
      order["address"] = address(*others[next]);
      order["port"] = port(*others[next]);
    }
    board.set(key("order", i), parx::json::dump(order), end);
  }
  for (std::size_t i = 1; i < others.size(); ++i) {
    if (!others[i]) continue;
    try {
      for (int round = 0; round < clock_rounds; ++round) {
        (void)board.get(fmt::format("ping/{}/{}", i, round), end);
        board.set(fmt::format("pong/{}/{}", i, round),
                  fmt::format("{:.9f}", parx::unix_seconds()), end);
      }
    } catch (const parx::error&) {
      // It has gone; the others are still served.
    }
  }
}

}  // namespace detail

/// Fills in what `facts` have of the exchange. Takes `limit` and some seconds at most, and never
/// throws for a network that does not work: that is a fact.
inline void exchange(const exchange_place& place, parx::slurm::host_facts& facts,
                     std::chrono::milliseconds limit) {
  const auto end = parx::deadline::after(limit);
  std::unique_ptr<parx::tcp_store_server> server;
  std::unique_ptr<parx::tcp_store> board;
  try {
    if (place.index == 0) {
      server = std::make_unique<parx::tcp_store_server>(
          parx::tcp_store_server_options{.port = place.port});
    }
    const std::string host = place.index == 0 ? parx::detail::loopback_address() : place.first_host;
    board = std::make_unique<parx::tcp_store>(
        parx::tcp_store_options{.host = host, .port = place.port}, end);
  } catch (const parx::error& failure) {
    facts.to_first_problem = parx::text_of(failure);
    return;
  }
  try {
    std::uint16_t port = 0;
    const parx::descriptor listener = detail::listening_socket(facts.address, port);
    board->set(detail::key("node", place.index),
               parx::json::dump(parx::json::object{{"address", facts.address}, {"port", port}}),
               end);
    if (place.index == 0) detail::serve_nodes(*board, place, end);
    // The first node may wait for one that never comes.
    const auto later = parx::deadline::after(limit + std::chrono::seconds(5));
    const auto order = parx::json::parse(board->get(detail::key("order", place.index), later));
    facts.from_first_problem = order.at("from_first_problem").text();
    facts.next = order.at("next").text();
    if (place.index != 0) {
      double best = 1e9;
      for (int round = 0; round < detail::clock_rounds; ++round) {
        const double before = parx::unix_seconds();
        board->set(fmt::format("ping/{}/{}", place.index, round), "", later);
        const double there =
            std::stod(board->get(fmt::format("pong/{}/{}", place.index, round), later));
        const double after = parx::unix_seconds();
        if (after - before >= best) continue;
        best = after - before;
        facts.clock_ahead_s = (before + after) / 2 - there;
        facts.round_trip_s = best;
      }
    }
    if (!facts.next.empty()) {
      facts.to_next_problem =
          detail::connect_problem(order.at("address").text(), order.at("port").as<std::uint16_t>(),
                                  parx::deadline::after(detail::connect_limit));
    }
    board->set(detail::key("done", place.index), "", later);
    facts.exchanged = true;
    // Others may still want this node's port, and all want the first node's store.
    std::vector<std::string> all;
    const auto last = parx::deadline::after(std::chrono::seconds(2));
    for (std::size_t i = 0; i < place.nodes.size(); ++i) {
      if (board->check(std::vector<std::string>{detail::key("node", i)}, last)) {
        all.push_back(detail::key("done", i));
      }
    }
    board->wait(all, last);
    if (place.index == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } catch (const std::exception&) {
    // What is known by now is in `facts`.
  }
}

}  // namespace examples
