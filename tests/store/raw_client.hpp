// A client of a store's server that sends what it likes.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>

class raw_client {
 public:
  explicit raw_client(std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
        0) {
      socket_.close();
    }
  }
  bool send(std::string_view bytes) {
    return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  /// On a non-blocking socket: the parts that the kernel takes of the bytes, sent again and again.
  void send_some(std::string_view bytes) {
    const ssize_t sent = ::send(socket_.get(), bytes.data() + sent_, bytes.size() - sent_,
                                MSG_NOSIGNAL);
    if (sent > 0) sent_ = (sent_ + static_cast<std::size_t>(sent)) % bytes.size();
  }
  /// What arrives within the time, at most `count` bytes; "closed" at the end of the stream.
  std::string receive(std::size_t count,
                      std::chrono::milliseconds patience = std::chrono::seconds(5)) {
    std::string result;
    const auto limit = parx::deadline::after(patience);
    while (result.size() < count) {
      pollfd polled{socket_.get(), POLLIN, 0};
      if (::poll(&polled, 1, limit.poll_timeout()) <= 0) return result;
      char piece[4096];
      const auto got =
          ::recv(socket_.get(), piece, std::min(sizeof piece, count - result.size()), 0);
      if (got <= 0) return "closed";
      result.append(piece, static_cast<std::size_t>(got));
    }
    return result;
  }
  bool hung_up() { return receive(1) == "closed"; }
  [[nodiscard]] int number() const { return socket_.get(); }

 private:
  parx::descriptor socket_;
  std::size_t sent_ = 0;
};
