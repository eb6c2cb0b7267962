// ucx_sides: two processes, each with a ucx_network, that may open links to each other: over UCX's
// TCP, over its shared memory, and there also with large bodies by rendezvous.
// Threads: each process has one.
#pragma once

#include <parx/transport/ucx.hpp>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/env.hpp>

namespace ucx_sides {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;
using parx::link_lost;
using parx::ucx_link;
using parx::detail::purpose;
using parx::detail::ucx_network;

inline const auto transports = boost::unit_test::data::make({"tcp", "self,sm", "rendezvous"});

inline std::byte pattern(std::size_t i) { return static_cast<std::byte>((i * 2654435761u) >> 13); }

inline double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

/// One of two processes.
struct side {
  int rank;
  int control;  ///< a socket to the other one
  ucx_network& network;
  std::string address;  ///< of the other one
  pid_t other = 0;

  [[nodiscard]] ucx_link open(std::uint64_t group, purpose what_for = purpose::collective) const {
    return ucx_link(network, {group, 1 - rank, what_for}, rank, 1 - rank, address, "challenge");
  }
  void tell(char what) const { check(::write(control, &what, 1) == 1, "the other side has gone"); }
  void await(char what) const {
    char got = 0;
    check(::read(control, &got, 1) == 1 && got == what, "the other side says something else");
  }
  static void check(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error(what);
  }
};

inline std::uint64_t tag_of_tests(const parx::detail::link_hello& hello,
                                  std::string_view challenge) {
  return 1000003 * hello.group + static_cast<std::uint64_t>(hello.rank) + challenge.size();
}

/// Sends all of `text` through a socket with its size before it, and receives as much.
inline std::string swap_texts(int socket, const std::string& text) {
  const std::uint64_t size = text.size();
  std::uint64_t other = 0;
  side::check(::write(socket, &size, sizeof size) == sizeof size &&
                  ::write(socket, text.data(), size) == static_cast<ssize_t>(size) &&
                  ::read(socket, &other, sizeof other) == sizeof other,
              "no exchange");
  std::string received(other, '\0');
  side::check(::recv(socket, received.data(), other, MSG_WAITALL) == static_cast<ssize_t>(other),
              "half an exchange");
  return received;
}

/// Runs body on both sides, each in a process of its own. `killed`: rank 1 does not end by itself.
/// Returns the texts of both exceptions, "" where there is none.
inline std::string on_two_processes(const std::string& transport,
                                    const std::function<void(const side&)>& body,
                                    bool killed = false) {
  int control[2], report[2];
  BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, control) == 0);
  BOOST_REQUIRE(::pipe(report) == 0);
  std::vector<pid_t> children;
  for (const int rank : {0, 1}) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    ::close(control[1 - rank]);
    const bool rendezvous = transport == "rendezvous";
    ::setenv("UCX_TLS", rendezvous ? "self,sm" : transport.c_str(), 1);
    if (rendezvous) ::setenv("UCX_RNDV_THRESH", "4096", 1);
    if (transport != "tcp") ::setenv("UCX_MM_ERROR_HANDLING", "y", 1);
    std::string failure;
    try {
      ucx_network network({.rank = rank,
                           .challenge = "challenge",
                           .own_interface = "lo",
                           .env = parx::process_environment(),
                           .tag = tag_of_tests,
                           .wake = [](std::uint64_t) {},
                           .lost = [] {}});
      side own{rank, control[rank], network, {}};
      own.other = std::stoi(swap_texts(own.control, std::to_string(::getpid())));
      own.address = swap_texts(own.control, network.address(true));
      body(own);
    } catch (const std::exception& thrown) {
      failure = "rank " + std::to_string(rank) + ": " + thrown.what() + "; ";
    }
    static_cast<void>(!::write(report[1], failure.data(), failure.size()));
    ::_exit(0);
  }
  ::close(report[1]);
  ::close(control[0]);
  ::close(control[1]);
  std::string all;
  char text[512];
  for (ssize_t got; (got = ::read(report[0], text, sizeof text)) > 0;) {
    all.append(text, static_cast<std::size_t>(got));
  }
  ::close(report[0]);
  for (const pid_t each : children) {
    int status = 0;
    ::waitpid(each, &status, 0);
    const bool meant = killed && each == children[1];
    if (!WIFEXITED(status) && !meant) all += "a process was killed; ";
  }
  return all;
}

inline void sleep_on(ucx_link& stream, bool readable, bool writable,
                     std::chrono::milliseconds limit) {
  std::vector<pollfd> polled;
  const auto plan = stream.before_sleep(readable, writable, polled);
  if (!plan.looks_twice || !stream.ready(readable, writable)) {
    ::poll(polled.data(), polled.size(), static_cast<int>(limit.count()));
  }
  stream.after_sleep(0);
}

inline void send_all(ucx_link& stream, const std::byte* bytes, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const auto sent = stream.try_send({}, {.data = bytes + done, .size = size - done});
    if (sent == 0) sleep_on(stream, false, true, 5s);
    done += sent;
  }
}
inline void receive_all(ucx_link& stream, std::byte* bytes, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const auto got = stream.try_receive({}, {.data = bytes + done, .size = size - done});
    if (got == 0) sleep_on(stream, true, false, 5s);
    done += got;
  }
}

}  // namespace ucx_sides
