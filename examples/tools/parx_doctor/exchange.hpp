// For parx_doctor host: whether the nodes reach each other, and how far their clocks are apart.
//
// The first node runs a store; the others connect to it, as the ranks of a job would. Each listens
// on a port of its own. The first node connects to each of them, each to the next one. A node that
// cannot take part has said all else about itself before.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tools/common/host_facts.hpp"
#include <parx/core/deadline.hpp>
#include <parx/core/json.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/unix_time.hpp>
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

/// An address and a port.
struct tcp_place {
  std::string address;
  std::uint16_t port = 0;
};

/// Why no connection to each of these can be made; empty: it can. All are tried at once, so that
/// those that do not answer cost the others nothing.
inline std::vector<std::string> connect_problems(const std::vector<tcp_place>& to,
                                                 parx::deadline limit) {
  std::vector<std::string> problems(to.size());
  std::vector<parx::descriptor> sockets(to.size());
  std::vector<pollfd> polled(to.size(), pollfd{-1, POLLOUT, 0});
  for (std::size_t i = 0; i < to.size(); ++i) {
    try {
      const auto address = parx::detail::socket_address::tcp(to[i].address, to[i].port);
      sockets[i] = parx::detail::stream_socket(address.data()->sa_family);
      if (sockets[i].valid() && ::connect(sockets[i].get(), address.data(), address.length) == 0) {
        continue;
      }
      if (sockets[i].valid() && errno == EINPROGRESS) polled[i].fd = sockets[i].get();
      else problems[i] = parx::errno_text(errno);
    } catch (const parx::error& failure) {
      problems[i] = parx::text_of(failure);
    }
  }
  const auto waits = [](const pollfd& each) { return each.fd >= 0; };
  while (std::any_of(polled.begin(), polled.end(), waits)) {
    const int ready = ::poll(polled.data(), polled.size(), limit.poll_timeout());
    if (ready < 0 && errno == EINTR) continue;
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (!waits(polled[i]) || (ready > 0 && polled[i].revents == 0)) continue;
      const std::string place = parx::detail::with_port(to[i].address, to[i].port);
      const int why = ready > 0 ? parx::detail::connection_error(polled[i].fd) : 0;
      if (ready <= 0) problems[i] = place + ": no answer";
      else if (why != 0) problems[i] = place + ": " + parx::errno_text(why);
      polled[i].fd = -1;
    }
  }
  return problems;
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

/// Tells nodes the time, `clock_rounds` times each, as they ask. One that does not ask is asked
/// again later, so that the others do not wait for it.
inline void serve_clocks(parx::store& board, std::deque<std::size_t> nodes, parx::deadline end) {
  std::vector<int> rounds(nodes.empty() ? 0 : *std::max_element(nodes.begin(), nodes.end()) + 1);
  while (!nodes.empty() && !end.passed()) {
    const std::size_t i = nodes.front();
    nodes.pop_front();
    try {
      const std::string ping = fmt::format("ping/{}/{}", i, rounds[i]);
      (void)board.get(ping, parx::deadline::after(std::chrono::milliseconds(100)));
      board.set(fmt::format("pong/{}/{}", i, rounds[i]),
                fmt::format("{:.9f}", parx::unix_seconds()), end);
      if (++rounds[i] < clock_rounds) nodes.push_front(i);
    } catch (const parx::error&) {
      nodes.push_back(i);
    }
  }
}

/// The first node's part: tells each node whether it can be reached, whom to try next, and the
/// time.
inline void serve_nodes(parx::store& board, const exchange_place& place, parx::deadline limit) {
  std::vector<std::size_t> there;
  std::vector<tcp_place> places;
  for (std::size_t i = 0; i < place.nodes.size(); ++i) {
    try {
      const auto node = parx::json::parse(board.get(key("node", i), limit));
      places.push_back({node.at("address").text(), node.at("port").as<std::uint16_t>()});
      there.push_back(i);
    } catch (const parx::error&) {
      // Not there in time; the deadline has passed, and the rest of the loop only looks.
    }
  }
  const auto end = parx::deadline::after(std::chrono::seconds(4));
  std::vector<std::string> problems;
  while (problems.size() < places.size()) {  // a process has few descriptors by default
    const auto begin = places.begin() + static_cast<std::ptrdiff_t>(problems.size());
    const auto count = std::min<std::ptrdiff_t>(places.end() - begin, 200);
    for (std::string& each :
         connect_problems({begin, begin + count}, parx::deadline::after(connect_limit))) {
      problems.push_back(std::move(each));
    }
  }
  for (std::size_t k = 0; k < there.size(); ++k) {
    const std::size_t next = (k + 1) % there.size();
    parx::json::object order{{"from_first_problem", there[k] == 0 ? "" : problems[k]},
                             {"next", ""}};
    if (next != k) {
      order["next"] = place.nodes[there[next]];
      order["address"] = places[next].address;
      order["port"] = places[next].port;
    }
    board.set(key("order", there[k]), parx::json::dump(order), end);
  }
  serve_clocks(board, {there.begin() + 1, there.end()}, end);
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
          detail::connect_problems(
              {{order.at("address").text(), order.at("port").as<std::uint16_t>()}},
              parx::deadline::after(detail::connect_limit))
              .front();
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
