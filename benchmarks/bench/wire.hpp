// wire: the bandwidth of an all_reduce relative to that of the loopback, and the memory it takes.
//
// The loopback is measured in the same run with the same memory: pairs of ranks (0 and 1, 2 and 3,
// ...), one thread each, send a whole buffer over a TCP connection and receive another at the same
// time, in calls of 256 KiB. A transport through shared memory may exceed it.
//
// Growth is the increase of the process's largest resident size (VmHWM) since both buffers were
// allocated, up to and including this row, on the rank that grew most. With --shared, the kernel
// also counts the pages that a rank touches in another rank's part.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <bench/figures.hpp>
#include <bench/measure.hpp>
#include <bench/place.hpp>
#include <bench/resident.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace bench {

namespace detail {

[[noreturn]] inline void wire_failed(std::string_view what) {
  parx::throw_error(parx::errc::io, "--mode wire: {}: {}", what, parx::errno_text(errno));
}

/// A TCP connection over 127.0.0.1 between rank 2i and rank 2i + 1. Collective.
[[nodiscard]] inline parx::descriptor connect_pair(backend& ranks) {
  const bool listens = ranks.rank() % 2 == 0;
  parx::descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) wire_failed("no socket can be made");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (listens && (::bind(socket.get(), raw, length) != 0 || ::listen(socket.get(), 1) != 0 ||
                  ::getsockname(socket.get(), raw, &length) != 0)) {
    wire_failed("127.0.0.1 cannot be listened on");
  }
  // Partners exchange their hosts' names with the port, because loopback only works on one host.
  struct place {
    std::array<char, 128> host{};
    in_port_t port = 0;
  };
  place mine;
  mine.port = address.sin_port;
  ::gethostname(mine.host.data(), mine.host.size() - 1);
  std::vector<place> all(static_cast<std::size_t>(ranks.size()));
  ranks.gather({reinterpret_cast<const char*>(&mine), sizeof mine},
               {reinterpret_cast<char*>(all.data()), all.size() * sizeof mine});
  const place& partner = all[static_cast<std::size_t>(ranks.rank() ^ 1)];
  parx::require(partner.host == mine.host, "--mode wire: ranks {} and {} are on different hosts",
                ranks.rank() & ~1, ranks.rank() | 1);
  if (listens) {
    parx::descriptor accepted(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted.valid()) wire_failed("the partner did not come");
    socket = std::move(accepted);
  } else {
    address.sin_port = partner.port;
    if (::connect(socket.get(), raw, sizeof address) != 0) wire_failed("the partner is not there");
  }
  ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  return socket;
}

/// Sends `bytes` from `out` while it receives as many into `in`.
inline void exchange(const parx::descriptor& socket, const std::byte* out, std::byte* in,
                     std::size_t bytes) {
  static constexpr std::size_t most = std::size_t{256} << 10;
  std::size_t sent = 0;
  std::size_t received = 0;
  while (sent < bytes || received < bytes) {
    bool moved = false;
    if (received < bytes) {
      const auto got = ::recv(socket.get(), in + received, std::min(most, bytes - received), 0);
      if (got == 0) errno = ECONNRESET;
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) wire_failed("recv");
      if (got > 0) received += static_cast<std::size_t>(got);
      moved |= got > 0;
    }
    if (sent < bytes) {
      const auto put = ::send(socket.get(), out + sent, std::min(most, bytes - sent), MSG_NOSIGNAL);
      if (put < 0 && errno != EAGAIN && errno != EINTR) wire_failed("send");
      if (put > 0) sent += static_cast<std::size_t>(put);
      moved |= put > 0;
    }
    if (moved) continue;
    const auto wanted =
        static_cast<short>((received < bytes ? POLLIN : 0) | (sent < bytes ? POLLOUT : 0));
    pollfd waited{socket.get(), wanted, 0};
    ::poll(&waited, 1, 1000);
  }
}

/// The largest resident size of this process so far.
[[nodiscard]] inline double largest_resident_mib() {
  return kib_of("/proc/self/status", {"VmHWM:"}) / 1024;
}

}  // namespace detail

inline void run_wire(backend& ranks, const options& given) {
  static constexpr double giga = 1e-9;
  parx::require(ranks.size() % 2 == 0, "--mode wire: {} ranks are not pairs", ranks.size());
  parx::require(given.operations == options{}.operations,
                "--mode wire: only all_reduce is measured");
  const std::size_t most = sizes_of(given).back();
  const buffer_pair buffers(ranks, given, most);
  const double resident = detail::largest_resident_mib();
  for_each_choice(ranks, given, [&](operation op, const std::string& algorithm) {
    const figures table(
        ranks, given, fmt::format("all_reduce ({})", algorithm),
        "wire: full-duplex loopback TCP, a direction; growth: resident memory beyond the buffers",
        {{"bytes", 0},
         {"wire_GB_per_s", 3},
         {"busbw_GB_per_s", 3},
         {"percent_of_wire", 1},
         {"growth_MiB", 2}});
    const parx::descriptor socket = detail::connect_pair(ranks);
    for_each_shape(ranks, given, op, [&](const shape& elements) {
      const call next =
          place_call(op, usual_placement(ranks, op), elements, given, ranks.rank(), buffers);
      clear(next);
      ranks.run(next);
      double growth = detail::largest_resident_mib() - resident;
      ranks.max_over_ranks({&growth, 1});
      const std::size_t bytes = next.output.bytes();
      // Both are measured in succession, so that other load on the host affects both.
      const timing reduced = measure(ranks, given, [&] { ranks.run(next); });
      const timing exchanged = measure(ranks, given, [&] {
        detail::exchange(socket, buffers.first.get(), buffers.second.get(), bytes);
      });
      const double size = static_cast<double>(bytes);
      const double wire = size / (exchanged.median * 1e-6) * giga;
      const double bandwidth = size / (reduced.median * 1e-6) * bus_factor(op, ranks.size()) * giga;
      const std::array row{size, wire, bandwidth, 100 * bandwidth / wire, growth};
      table.add(row);
    });
  });
}

}  // namespace bench
