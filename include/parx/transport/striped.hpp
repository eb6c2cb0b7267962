// striped_link: a link over several TCP connections, for networks that limit the rate of each one.
//
// The link's byte stream is cut into segments. Each has a header with its offset in the stream. A
// small message goes over the first connection, and so does the first segment of a large one, whose
// header says how many bytes after it may come over any connection. Such bytes go to the next
// connection that accepts a segment: one that holds `credit` unsent bytes accepts none, so that a
// slow connection gets less. The receiver reads the segments in stream order from whichever
// connection has the next one. Bytes that arrive early wait in the kernel, bounded by their
// connection's window, so reordering needs no copy. Losing one connection is losing the peer.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/transport/detail/tcp_stream.hpp>

namespace parx::inline PARX_ABI {

class striped_link final : public detail::process_link {
 public:
  /// A link over `count` connections: make_stream(0), make_stream(1), ...
  template <typename MakeStream>
  [[gnu::cold]] striped_link(int peer, int count, const MakeStream& make_stream) : peer_(peer) {
    for (int number = 0; number < count; ++number) {
      lanes_.push_back({.stream = make_stream(number)});
    }
  }

  /// Bytes after a segment that was not sent completely are assigned to connections, but not
  /// counted in the result yet. As with any link, the caller passes them again.
  std::size_t try_send(const const_bytes& first, const const_bytes& second) override {
    if (!opened()) return 0;
    const std::uint64_t end = sent_ + first.size + second.size;
    for (lane& each : lanes_) {
      if (each.sending()) push(each, first, second);
    }
    // One segment per connection, and then the caller serves the other direction.
    for (std::size_t tries = 0; tries < lanes_.size() && dealt_ < end; ++tries) {
      const bool anywhere = dealt_ < stripes_end_;
      lane& taker = lanes_[anywhere ? next_++ % lanes_.size() : 0];
      if (!taker.sending()) {
        deal(taker, end - dealt_, anywhere ? 0 : second.to_follow, first, second);
      }
    }
    std::uint64_t whole = dealt_;
    for (const lane& each : lanes_) {
      if (each.sending()) whole = std::min(whole, each.out.offset + each.body_sent());
    }
    return static_cast<std::size_t>(whole - std::exchange(sent_, whole));
  }

  std::size_t try_receive(const mutable_bytes& first, const mutable_bytes& second) override {
    if (!opened()) return 0;
    const std::size_t room = first.size + second.size;
    std::size_t got = 0;
    while (got < room) {
      lane* source = holder();
      if (source == nullptr && read_headers()) continue;
      const std::size_t read = source == nullptr ? 0 : pull(*source, first, second, got);
      if (read == 0) break;
      got += read;
    }
    if (got == 0) check_ended();
    return got;
  }

  [[nodiscard]] detail::sleep_plan before_sleep(bool readable, bool writable,
                                                std::vector<pollfd>& polled) override {
    if (!open_) {
      bool awaiting = false;
      for (const lane& each : lanes_) awaiting |= each.stream.awaits_peer(polled);
      return {.awaiting = awaiting};
    }
    bool busy = false;
    for (const lane& each : lanes_) busy |= each.sending();
    const lane* source = holder();
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const lane& each = lanes_[i];
      const bool reads = brings_next(i, source);
      const bool writes = busy ? each.sending() : i == 0 || dealt_ < stripes_end_;
      const short events = each.stream.events(readable && reads, writable && writes);
      if (events != 0) polled.push_back({each.stream.descriptor(), events, 0});
    }
    return {.looks_twice = ready(readable, writable)};
  }
  [[nodiscard]] bool ready(bool readable, bool /*writable*/) const noexcept override {
    const lane* source = holder();
    for (std::size_t i = 0; readable && i < lanes_.size(); ++i) {
      if (brings_next(i, source) && lanes_[i].stream.may_hold_bytes()) return true;
    }
    return false;
  }

  void after_sleep(short events) override {
    if (events != 0) return;
    for (lane& each : lanes_) open_ &= each.stream.note_silence();
  }
  void close() noexcept override {
    for (lane& each : lanes_) each.stream.close();
    open_ = false;
  }

 private:
  /// Large enough to amortize a segment's cost, small enough for a megabyte to use all connections.
  static constexpr std::size_t segment_bytes = std::size_t{128} << 10;
  static constexpr int credit = 2 * int{segment_bytes};
  static constexpr std::size_t header_bytes = sizeof(detail::segment_header);
  static constexpr std::uint64_t most_striped = std::uint64_t{1} << 30;
  /// A peer that leaves closes all its connections at once. Their ends may arrive in any order,
  /// within this time.
  static constexpr std::chrono::seconds end_patience{1};

  struct lane {
    detail::tcp_stream stream;
    detail::segment_header out{};  ///< the latest segment assigned to it
    std::size_t out_sent = 0;      ///< of `out`, header included
    detail::segment_header in{};   ///< the segment being received over it
    std::size_t in_received = 0;   ///< of `in`, header included

    [[nodiscard]] bool sending() const noexcept {
      return out.length > 0 && out_sent < header_bytes + out.length;
    }
    [[nodiscard]] std::size_t body_sent() const noexcept {
      return std::max(out_sent, header_bytes) - header_bytes;
    }
    [[nodiscard]] bool knows_next() const noexcept { return in_received >= header_bytes; }
  };

  [[nodiscard]] bool opened() {
    if (open_) return true;
    bool all = true;
    for (lane& each : lanes_) all &= each.stream.opened();
    if (!all) return false;
    for (lane& each : lanes_) each.stream.limit_unsent(credit);
    return open_ = true;
  }

  /// Assigns the next segment to a connection, if that accepts at least one byte of it now.
  void deal(lane& taker, std::uint64_t offered, std::size_t to_follow, const_bytes first,
            const_bytes second) {
    const auto length = std::min<std::uint64_t>(offered, segment_bytes);
    std::uint64_t striped = 0;
    if (dealt_ >= stripes_end_) striped = std::min(offered - length + to_follow, most_striped);
    taker.out = {dealt_, static_cast<std::uint32_t>(length), static_cast<std::uint32_t>(striped)};
    taker.out_sent = 0;
    push(taker, first, second);
    if (taker.out_sent == 0) {
      taker.out.length = 0;
      return;
    }
    dealt_ += length;
    if (striped > 0) stripes_end_ = dealt_ + striped;
  }

  void push(lane& to, const_bytes first, const_bytes second) {
    iovec parts[3];
    std::size_t used = 0;
    if (to.out_sent < header_bytes) {
      parts[used++] = {reinterpret_cast<std::byte*>(&to.out) + to.out_sent,
                       header_bytes - to.out_sent};
    }
    const auto skip = static_cast<std::size_t>(to.out.offset + to.body_sent() - sent_);
    used += slice({const_cast<std::byte*>(first.data), first.size},
                  {const_cast<std::byte*>(second.data), second.size}, skip,
                  to.out.length - to.body_sent(), parts + used);
    to.out_sent += to.stream.send({parts, used});
  }

  /// Bytes [skip, skip + size) of two buffers taken as one. Returns the number of parts, at most 2.
  [[nodiscard]] static std::size_t slice(const mutable_bytes& first, const mutable_bytes& second,
                                         std::size_t skip, std::size_t size,
                                         iovec* parts) noexcept {
    std::size_t used = 0;
    if (skip < first.size) {
      const std::size_t here = std::min(size, first.size - skip);
      parts[used++] = {first.data + skip, here};
      size -= here;
      skip += here;
    }
    if (size > 0) parts[used++] = {second.data + (skip - first.size), size};
    return used;
  }

  /// The connection that brings the stream's next byte, if the segment's header has been read.
  [[nodiscard]] const lane* holder() const noexcept {
    for (const lane& each : lanes_) {
      if (each.knows_next() && each.in.offset + (each.in_received - header_bytes) == received_) {
        return &each;
      }
    }
    return nullptr;
  }
  [[nodiscard]] lane* holder() noexcept { return const_cast<lane*>(std::as_const(*this).holder()); }
  /// Whether the next read is from this connection; `source` is the holder.
  [[nodiscard]] bool brings_next(std::size_t number, const lane* source) const noexcept {
    return source != nullptr ? &lanes_[number] == source : may_bring_next(number);
  }
  /// Whether the next byte may come over this connection, whose next header is not read yet.
  [[nodiscard]] bool may_bring_next(std::size_t number) const noexcept {
    const lane& each = lanes_[number];
    return (number == 0 || received_ < incoming_stripes_end_) && !each.knows_next() &&
           !each.stream.ended();
  }
  /// Reads headers; true when one has been completed.
  [[nodiscard]] bool read_headers() {
    bool found = false;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (!may_bring_next(i)) continue;
      lane& each = lanes_[i];
      iovec part{reinterpret_cast<std::byte*>(&each.in) + each.in_received,
                 header_bytes - each.in_received};
      each.in_received += each.stream.receive({&part, 1}, part.iov_len);
      if (each.knows_next()) {
        check(each);
        found = true;
      }
    }
    return found;
  }
  void check(const lane& each) {
    const detail::segment_header& next = each.in;
    const bool first = &each == lanes_.data();
    if (next.length == 0 || next.length > segment_bytes || next.offset < received_ ||
        (next.striped > 0 && !first)) {
      throw link_lost(peer_, "it sent bytes that are not a segment of parx");
    }
    if (next.striped > 0) incoming_stripes_end_ = next.offset + next.length + next.striped;
  }

  /// Receives bytes of a connection's present segment, and the header of its next one.
  std::size_t pull(lane& from, const mutable_bytes& first, const mutable_bytes& second,
                   std::size_t skip) {
    const std::size_t left = header_bytes + from.in.length - from.in_received;
    const std::size_t size = std::min(left, first.size + second.size - skip);
    iovec parts[3];
    std::size_t used = slice(first, second, skip, size, parts);
    detail::segment_header next;
    if (size == left) parts[used++] = {&next, header_bytes};
    const std::size_t got = from.stream.receive({parts, used}, size);
    const std::size_t body = std::min(got, size);
    received_ += body;
    from.in_received += body;
    if (body < left) return body;
    from.in = next;
    from.in_received = got - body;
    if (from.knows_next()) check(from);
    return body;
  }

  /// Throws link_lost if no more bytes can arrive, since connections have ended.
  void check_ended() {
    using clock = std::chrono::steady_clock;
    const auto has_ended = [](const lane& each) { return each.stream.ended(); };
    if (std::none_of(lanes_.begin(), lanes_.end(), has_ended)) return;
    const lane* source = holder();
    if (source == nullptr && received_ >= incoming_stripes_end_) source = lanes_.data();
    if ((source != nullptr && source->stream.ended()) ||
        std::all_of(lanes_.begin(), lanes_.end(), has_ended)) {
      throw closed_by(peer_);
    }
    if (first_end_ == clock::time_point{}) first_end_ = clock::now();
    if (clock::now() - first_end_ > end_patience) {
      throw link_lost(peer_, formatted("one of the {} connections to it has ended", lanes_.size()));
    }
  }

  std::vector<lane> lanes_;
  int peer_;
  bool open_ = false;
  // Offsets in the link's byte stream.
  std::uint64_t sent_ = 0;         ///< all bytes before it are sent and reported to the caller
  std::uint64_t dealt_ = 0;        ///< all bytes before it are assigned to a connection
  std::uint64_t stripes_end_ = 0;  ///< from here on only the first connection may be used
  std::uint64_t received_ = 0;
  std::uint64_t incoming_stripes_end_ = 0;
  std::size_t next_ = 1;
  std::chrono::steady_clock::time_point first_end_{};
};

}  // namespace parx
