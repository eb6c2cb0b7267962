// connection: a client's non-blocking socket with buffered reads. Each step has a deadline.
//
// After a store_failure the stream may be in the middle of an answer, so the connection must be
// closed. One thread at a time.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/store/detail/failure.hpp>
#include <parx/store/detail/protocol.hpp>
#include <parx/store/detail/store_socket.hpp>

namespace parx::inline PARX_ABI::detail {

class connection {
 public:
  connection() = default;
  explicit connection(descriptor socket) : socket_(std::move(socket)) {}

  [[nodiscard]] int descriptor_number() const noexcept { return socket_.socket().get(); }
  [[nodiscard]] bool open() const noexcept { return socket_.socket().valid(); }
  void close() noexcept { socket_.close(); }
  /// Encrypts everything from now on; see store_socket.
  void encrypt(const mac& key) { socket_.encrypt(tls_side::client, key); }
  /// The server sees the end at once, even if a forked process still has the socket.
  void hang_up() noexcept {
    if (open()) ::shutdown(descriptor_number(), SHUT_RDWR);
    close();
  }

  void send(std::string_view bytes, const deadline& limit) {
    while (!bytes.empty()) {
      const ssize_t sent = socket_.put(bytes);
      if (sent >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!wait_for(socket_.events_to_put(), limit)) {
          throw store_failure{errc::timeout, "the server did not take the request in time"};
        }
      } else if (errno != EINTR) {
        lost(errno);
      }
    }
  }

  /// Waits until at least `count` bytes are buffered. False when the deadline passed first.
  [[nodiscard]] bool available(std::size_t count, const deadline& limit) {
    while (buffered() < count) {
      if (receive_some() != 0) continue;
      if (!wait_for(socket_.events_to_take(), limit)) return false;
    }
    return true;
  }

  /// Receives a number or an array of bytes.
  template <typename Value>
  [[nodiscard]] Value receive(const deadline& limit) {
    require_bytes(sizeof(Value), limit);
    const std::string_view bytes = std::string_view(buffer_).substr(read_, sizeof(Value));
    read_ += sizeof(Value);
    if constexpr (std::is_integral_v<Value>) {
      return store_protocol::take<Value>(bytes);
    } else {
      Value value;
      std::memcpy(value.data(), bytes.data(), bytes.size());
      return value;
    }
  }

  [[nodiscard]] std::string receive_string(const deadline& limit) {
    const auto length = receive<std::uint64_t>(limit);
    if (length > store_protocol::max_message_bytes) {
      throw store_failure{errc::protocol,
                          formatted("the server announced a value of {} bytes; is something else "
                                    "than a store listening on that port?",
                                    length)};
    }
    require_bytes(static_cast<std::size_t>(length), limit);
    std::string value = buffer_.substr(read_, static_cast<std::size_t>(length));
    read_ += static_cast<std::size_t>(length);
    return value;
  }

  /// A byte that has already arrived, or nullopt; does not block. Throws when the server is gone.
  [[nodiscard]] std::optional<std::uint8_t> try_receive_byte() {
    if (buffered() == 0 && receive_some() == 0) return std::nullopt;
    return static_cast<std::uint8_t>(buffer_[read_++]);
  }

  /// Whether an idle connection can be used again: no end of stream, no error, no stray byte.
  [[nodiscard]] bool quiet() noexcept {
    if (!open() || buffered() > 0) return false;
    pollfd polled{descriptor_number(), POLLIN, 0};
    return ::poll(&polled, 1, 0) == 0;
  }

 private:
  [[nodiscard]] std::size_t buffered() const noexcept { return buffer_.size() - read_; }

  void require_bytes(std::size_t count, const deadline& limit) {
    if (!available(count, limit)) {
      throw store_failure{errc::timeout, "the server did not answer in time"};
    }
  }

  // Returns 0 when nothing has arrived.
  std::size_t receive_some() {
    if (read_ == buffer_.size()) {
      buffer_.clear();
      read_ = 0;
    }
    char chunk[16 * 1024];
    while (true) {
      const ssize_t got = socket_.take(chunk, sizeof chunk);
      if (got > 0) {
        buffer_.append(chunk, static_cast<std::size_t>(got));
        return static_cast<std::size_t>(got);
      }
      if (got == 0) throw store_failure{errc::peer_lost, "the server closed the connection"};
      if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
      if (errno != EINTR) lost(errno);
    }
  }

  bool wait_for(short events, const deadline& limit) {
    while (true) {
      pollfd polled{descriptor_number(), events, 0};
      const int ready = ::poll(&polled, 1, limit.poll_timeout());
      if (ready > 0) return true;
      if (ready == 0 && limit.passed()) return false;
      if (ready < 0 && errno != EINTR) {
        throw store_failure{errc::io, "poll failed: " + errno_text(errno)};
      }
    }
  }

  [[noreturn]] void lost(int error_number) const {
    throw store_failure{errc::peer_lost,
                        "the connection to the server broke: " + socket_.reason(error_number)};
  }

  store_socket socket_;
  std::string buffer_;
  std::size_t read_ = 0;
};

}  // namespace parx::detail
