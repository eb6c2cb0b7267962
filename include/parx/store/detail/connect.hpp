// Opening a TCP connection before a deadline: resolve the name, try its addresses, retry.
//
// Addresses are tried in the resolver's order, each 250 ms after the previous one or as soon as all
// attempts so far have failed (as in RFC 8305, Happy Eyeballs): an unreachable IPv6 address costs
// 250 ms, not minutes. The functions have no shared state and may run on any thread.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/store/detail/failure.hpp>

namespace parx::inline PARX_ABI::detail {

/// As find_addresses(); null, with a `reason`, where the name cannot be resolved.
[[nodiscard]] inline address_list resolve(const std::string& host, std::uint16_t port,
                                          std::string& reason) {
  int code = 0;
  address_list found = find_addresses(host.c_str(), port, 0, code);
  if (!found) {
    reason = formatted("the name \"{}\" cannot be resolved: {}", host,
                       code == EAI_SYSTEM ? errno_text(errno) : ::gai_strerror(code));
  }
  return found;
}

/// Tries every address once. Not valid, with a `reason`, where none accepts.
[[nodiscard, gnu::cold]] inline descriptor connect_any(const addrinfo* addresses,
                                                       const deadline& limit, std::string& reason) {
  using clock = deadline::clock;
  constexpr auto stagger = std::chrono::milliseconds(250);
  // Attempts without an answer are given up after 10 s, so that the name is resolved again.
  const auto give_up =
      clock::now() + std::min<deadline::duration>(limit.remaining(), std::chrono::seconds(10));
  struct attempt {
    descriptor socket;
    const addrinfo* address;
  };
  std::vector<attempt> attempts;
  const auto note = [&](const addrinfo* address, int error_number) {
    reason = formatted("{}: {}", address_text(address->ai_addr, address->ai_addrlen),
                       errno_text(error_number));
  };
  const addrinfo* next = addresses;
  auto next_start = clock::now();
  while (true) {
    const auto now = clock::now();
    if (next != nullptr && (attempts.empty() || now >= next_start)) {
      attempt a{stream_socket(next->ai_family), next};
      next = next->ai_next;
      next_start = now + stagger;
      if (!a.socket.valid()) {
        note(a.address, errno);
      } else if (::connect(a.socket.get(), a.address->ai_addr, a.address->ai_addrlen) == 0) {
        return std::move(a.socket);
      } else if (errno == EINPROGRESS) {
        attempts.push_back(std::move(a));
      } else {
        note(a.address, errno);
      }
      continue;
    }
    if (attempts.empty()) return {};
    if (now >= give_up) {
      const addrinfo& first = *attempts.front().address;
      reason = formatted("{}: no answer", address_text(first.ai_addr, first.ai_addrlen));
      return {};
    }
    std::vector<pollfd> polled;
    for (const attempt& a : attempts) polled.push_back({a.socket.get(), POLLOUT, 0});
    const auto until = next != nullptr ? std::min(give_up, next_start) : give_up;
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    if (::poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(wait, 0))) <=
        0)
      continue;
    for (std::size_t i = polled.size(); i-- > 0;) {
      if (polled[i].revents == 0) continue;
      const int error_number = connection_error(polled[i].fd);
      if (error_number == 0) return std::move(attempts[i].socket);
      note(attempts[i].address, error_number);
      attempts.erase(attempts.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

/// Repeated attempts to reach a server: counts them, sleeps in between, and after 5 s logs once
/// what the program waits for.
class retry_loop {
 public:
  retry_loop(std::string what, const deadline& limit,
             std::chrono::milliseconds silence = std::chrono::seconds(5))
      : what_(std::move(what)), limit_(limit), silence_(silence) {}

  /// To be called after each failure; returns when it is time for another attempt. Throws
  /// store_failure once the deadline has passed.
  [[gnu::cold]] void failed(const std::string& reason) {
    ++attempts_;
    const double elapsed = started_.elapsed_seconds();
    if (elapsed * 1000 > static_cast<double>(silence_.count()) && !warned_) {
      warned_ = true;
      log(log_level::warn,
          "still waiting for {} after {:.0f} s and {} attempts (the last one: {}); is the process "
          "that hosts it, usually rank 0, running there?",
          what_, elapsed, attempts_, reason);
    }
    std::this_thread::sleep_for(std::min(pause_, limit_.remaining()));
    pause_ = std::min(pause_ * 2, deadline::duration(500));
    if (limit_.passed()) {
      throw store_failure{
          errc::timeout,
          formatted("it could not be reached in {} attempts; the last one: {}. Check "
                    "that the process that hosts it (usually rank 0) is running, that "
                    "host and port are right, that no other program listens there, and that no "
                    "firewall is between",
                    attempts_, reason)};
    }
  }

 private:
  std::string what_;
  deadline limit_;
  deadline::duration silence_;
  deadline started_ = deadline::never();
  int attempts_ = 0;
  bool warned_ = false;
  deadline::duration pause_{10};
};

}  // namespace parx::detail
