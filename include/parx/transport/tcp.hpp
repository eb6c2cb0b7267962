// tcp_link: a link over one TCP connection.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include <parx/transport/detail/tcp_stream.hpp>

namespace parx::inline PARX_ABI {

class tcp_link final : public detail::process_link {
 public:
  tcp_link(detail::tcp_stream stream, int peer) : stream_(std::move(stream)), peer_(peer) {}

  std::size_t try_send(const const_bytes& first, const const_bytes& second) override {
    if (!stream_.opened()) return 0;
    iovec parts[2] = {{const_cast<std::byte*>(first.data), first.size},
                      {const_cast<std::byte*>(second.data), std::min(second.size, most_bytes)}};
    return stream_.send(used(parts), second.more_follows);
  }

  std::size_t try_receive(const mutable_bytes& first, const mutable_bytes& second) override {
    if (!stream_.opened()) return 0;
    if (ahead_.empty()) {
      const std::size_t wanted = first.size + second.size;
      if (wanted > most_read_ahead) return receive(first, second);
      ahead_.fill([&](std::byte* to, std::size_t room) { return receive({to, room}, {}); });
    }
    const std::size_t of_first = ahead_.take(first);
    return of_first + ahead_.take(second);
  }

  [[nodiscard]] detail::sleep_plan before_sleep(bool readable, bool writable,
                                                std::vector<pollfd>& polled) override {
    if (!stream_.is_open()) return {.awaiting = stream_.awaits_peer(polled)};
    polled.push_back({stream_.descriptor(), stream_.events(readable, writable), 0});
    return {.looks_twice = ready(readable, writable)};
  }
  [[nodiscard]] bool ready(bool readable, bool /*writable*/) const noexcept override {
    return readable && (!ahead_.empty() || stream_.may_hold_bytes());
  }
  void after_sleep(short events) override {
    if (events == 0) stream_.note_silence();
  }
  void close() noexcept override { stream_.close(); }

 private:
  /// Most that one call sends: enough to amortize the system call, and then the caller serves the
  /// other direction.
  static constexpr std::size_t most_bytes = std::size_t{256} << 10;

  /// Reads of at most this size are buffered: many short messages, or a header and its body, cost
  /// one system call.
  static constexpr std::size_t most_read_ahead = std::size_t{2} << 10;

  /// Bytes that were received before they were asked for.
  class read_ahead {
   public:
    [[nodiscard]] bool empty() const noexcept { return begin_ == end_; }
    /// The buffer must be empty. read(to, room) returns how many bytes it has written.
    template <typename Read>
    void fill(const Read& read) {
      if (!bytes_) bytes_.reset(new std::byte[capacity]);
      begin_ = end_ = 0;
      end_ = read(bytes_.get(), capacity);
    }
    std::size_t take(const mutable_bytes& to) noexcept {
      const std::size_t size = std::min(to.size, end_ - begin_);
      if (size > 0) std::memcpy(to.data, bytes_.get() + begin_, size);
      begin_ += size;
      return size;
    }

   private:
    static constexpr std::size_t capacity = std::size_t{8} << 10;
    std::unique_ptr<std::byte[]> bytes_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
  };

  std::size_t receive(const mutable_bytes& first, const mutable_bytes& second) {
    iovec parts[2] = {{first.data, first.size}, {second.data, second.size}};
    const std::size_t received = stream_.receive(used(parts), first.size + second.size);
    if (received == 0 && stream_.ended()) throw closed_by(peer_);
    return received;
  }
  [[nodiscard]] static std::span<iovec> used(iovec (&parts)[2]) noexcept {
    const std::size_t begin = parts[0].iov_len > 0 ? 0 : 1;
    return {parts + begin, 2 - begin - (parts[1].iov_len > 0 ? 0 : 1)};
  }

  detail::tcp_stream stream_;
  int peer_;
  read_ahead ahead_;
};

}  // namespace parx
