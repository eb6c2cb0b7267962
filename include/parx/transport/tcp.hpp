// tcp_link: a link over one TCP connection.
#pragma once

#include <algorithm>
#include <utility>

#include <parx/transport/detail/tcp_stream.hpp>

namespace parx {

class tcp_link final : public detail::process_link {
 public:
  tcp_link(detail::tcp_stream stream, int peer) : stream_(std::move(stream)), peer_(peer) {}

  std::size_t try_send(const const_bytes& first, const const_bytes& second) override {
    if (!stream_.opened()) return 0;
    iovec parts[2] = {{const_cast<std::byte*>(first.data), first.size},
                      {const_cast<std::byte*>(second.data), std::min(second.size, most_bytes)}};
    return stream_.send(used(parts));
  }

  std::size_t try_receive(mutable_bytes first, mutable_bytes second) override {
    if (!stream_.opened()) return 0;
    iovec parts[2] = {{first.data, first.size}, {second.data, second.size}};
    const std::size_t received = stream_.receive(used(parts), first.size + second.size);
    if (received == 0 && stream_.ended()) throw link_lost(peer_, "it closed the connection");
    return received;
  }

  [[nodiscard]] detail::sleep_plan before_sleep(bool readable, bool writable,
                                                std::vector<pollfd>& polled) override {
    if (!stream_.is_open()) return {.awaiting = stream_.awaits_peer(polled)};
    const int events = (readable ? POLLIN : 0) | (writable ? POLLOUT : 0);
    polled.push_back({stream_.descriptor(), static_cast<short>(events), 0});
    return {};
  }
  void after_sleep(short) override {}
  [[nodiscard]] bool open() const noexcept override { return stream_.is_open(); }
  void close() noexcept override { stream_.close(); }

 private:
  /// Sent by one call: enough to make its cost small; then the other direction has its turn.
  static constexpr std::size_t most_bytes = std::size_t{256} << 10;

  [[nodiscard]] static std::span<iovec> used(iovec (&parts)[2]) noexcept {
    const std::size_t begin = parts[0].iov_len > 0 ? 0 : 1;
    return {parts + begin, 2 - begin - (parts[1].iov_len > 0 ? 0 : 1)};
  }

  detail::tcp_stream stream_;
  int peer_;
};

}  // namespace parx
