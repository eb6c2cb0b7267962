// room: memory of a store's server that all clients share, for one purpose. No I/O.
//
// Knows which clients hold some of it, in the order in which they began, and which wait for some,
// in the order in which they began to wait. The memory is short while more than the limit is held,
// or while the first that waits finds no room. Then the client that has held longest goes first: it
// may pass the limit, so that one request after the other is completed, and it is dropped if it
// makes no progress for a while or takes too long: a stranger after 250 ms and 5 s, a rank of the
// job, which a busy host may leave without a processor, after 10 s and 60 s. Time that a client
// waits does not count.
// Every operation takes time logarithmic in the number of clients. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>

#include <parx/core/abi.hpp>
#include <parx/core/deadline.hpp>

namespace parx::inline PARX_ABI::detail {

class room {
 public:
  using client_id = std::uint64_t;
  using time_point = deadline::clock::time_point;

  struct patience {
    std::chrono::milliseconds standstill;
    std::chrono::milliseconds whole;
  };
  static constexpr patience for_stranger{std::chrono::milliseconds(250), std::chrono::seconds(5)};
  /// For a client that has proved that it knows the job's secret.
  static constexpr patience for_rank{std::chrono::seconds(10), std::chrono::seconds(60)};

  explicit room(std::size_t limit) : limit_(limit) {}

  /// A client holds so many bytes now; 0 for none.
  void hold(client_id id, std::size_t bytes, time_point now, patience given = for_stranger) {
    client& c = clients_[id];
    c.given = given;
    if (c.held == 0 && bytes > 0) {
      c.place = holders_.insert(holders_.end(), id);
      c.resumed = c.moved = now;
    }
    if (c.held > 0 && bytes == 0) holders_.erase(c.place);
    used_ += bytes - c.held;
    c.held = bytes;
    drop_if_unused(id);
  }
  void progress(client_id id, time_point now) {
    if (const auto known = clients_.find(id); known != clients_.end()) known->second.moved = now;
  }
  /// A client waits until there is room for so many more bytes, at least 1.
  void wait(client_id id, std::size_t bytes) {
    client& c = clients_[id];
    if (c.wanted == 0) c.queue_place = queue_.insert(queue_.end(), id);
    c.wanted = bytes;
  }
  /// The client has gone.
  void forget(client_id id) {
    const auto known = clients_.find(id);
    if (known == clients_.end()) return;
    used_ -= known->second.held;
    if (known->second.held > 0) holders_.erase(known->second.place);
    if (known->second.wanted > 0) queue_.erase(known->second.queue_place);
    clients_.erase(known);
  }

  /// Whether so many more bytes find room. They do in any case where nothing is held.
  [[nodiscard]] bool fits(std::size_t bytes) const noexcept {
    return used_ == 0 || used_ + bytes <= limit_;
  }
  [[nodiscard]] bool is_full() const noexcept { return used_ > limit_; }
  [[nodiscard]] bool is_short() const {
    return is_full() || (!queue_.empty() && !fits(clients_.at(queue_.front()).wanted));
  }
  /// Whether the client may add to what it holds although the room is full.
  [[nodiscard]] bool goes_first(client_id id) const {
    return !holders_.empty() && holders_.front() == id;
  }

  /// The next client that need not wait any longer.
  [[nodiscard]] std::optional<client_id> next() const {
    if (!holders_.empty() && clients_.at(holders_.front()).wanted > 0) return holders_.front();
    if (queue_.empty() || is_short()) return std::nullopt;
    return queue_.front();
  }
  /// The client no longer waits, for this or for anything else, and is given time from now.
  void resume(client_id id, time_point now) {
    const auto known = clients_.find(id);
    if (known == clients_.end()) return;
    client& c = known->second;
    if (c.wanted > 0) queue_.erase(c.queue_place);
    c.wanted = 0;
    c.resumed = c.moved = now;
    drop_if_unused(id);
  }
  /// The client that is to be disconnected because it is too slow while room is short.
  [[nodiscard]] std::optional<client_id> overdue(time_point now) const {
    if (holders_.empty() || !is_short()) return std::nullopt;
    const client& first = clients_.at(holders_.front());
    const bool in_time =
        now - first.moved <= first.given.standstill && now - first.resumed <= first.given.whole;
    if (first.wanted > 0 || in_time) return std::nullopt;
    return holders_.front();
  }

 private:
  struct client {
    std::size_t held = 0;
    std::size_t wanted = 0;  // more than 0: waits
    time_point resumed{};    // or when it began to hold
    time_point moved{};      // when it last made progress
    patience given = for_stranger;
    std::list<client_id>::iterator place{};        // in holders_, if it holds
    std::list<client_id>::iterator queue_place{};  // in queue_, if it waits
  };
  void drop_if_unused(client_id id) {
    const auto known = clients_.find(id);
    if (known->second.held == 0 && known->second.wanted == 0) clients_.erase(known);
  }

  std::size_t limit_;
  std::size_t used_ = 0;
  std::map<client_id, client> clients_;  // those that hold or wait
  std::list<client_id> holders_;         // the first to have begun first
  std::list<client_id> queue_;           // of those that wait
};

}  // namespace parx::detail
