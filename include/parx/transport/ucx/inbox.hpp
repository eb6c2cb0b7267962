// ucx_inbox: what has arrived for a link and was not received yet.
//
// Eager bytes are copied while UCX delivers them: into the caller's memory if a receive is under
// way, else behind the bytes that wait here. Of a rendezvous only the announcement arrives. Its
// bytes are fetched when a receive knows where they go: into the caller's memory if all of them
// fit, else into memory of the inbox. Threads: one at a time.
#pragma once

#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class ucx_network;
struct ucx_stream;

/// Where a receive writes to, and how much it has written.
struct ucx_destination {
  mutable_bytes first;
  mutable_bytes second;
  std::size_t got = 0;

  [[nodiscard]] std::size_t wanted() const noexcept { return first.size + second.size; }
  /// Copies as much as is wanted; returns how much that was.
  std::size_t put(const std::byte* from, std::size_t size) noexcept {
    std::size_t done = 0;
    while (done < size && got < wanted()) {
      const bool in_first = got < first.size;
      std::byte* const to = in_first ? first.data + got : second.data + (got - first.size);
      const std::size_t part = std::min(size - done, (in_first ? first.size : wanted()) - got);
      std::memcpy(to, from + done, part);
      done += part;
      got += part;
    }
    return done;
  }
};

/// A message whose bytes are still with the sender.
struct ucx_rendezvous {
  void* descriptor = nullptr;
  std::size_t size = 0;
  bool started = false;
  ucs_status_t state = UCS_INPROGRESS;
  std::byte* to = nullptr;      ///< in the caller's memory; else
  std::vector<std::byte> copy;  ///< here
  // Whom to wake once it has ended.
  ucx_network* network = nullptr;
  ucx_stream* stream = nullptr;
};

class ucx_inbox {
 public:
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  /// Whether a receive would return bytes, or could start to fetch some.
  [[nodiscard]] bool ready() const noexcept {
    if (waiting_.empty()) return false;
    const ucx_rendezvous* const front = waiting_.front().remote.get();
    return front == nullptr || !front->started || front->state != UCS_INPROGRESS;
  }
  /// Whether UCX is writing into the caller's memory or the inbox's.
  [[nodiscard]] bool is_fetching() const noexcept {
    return std::any_of(waiting_.begin(), waiting_.end(), [](const segment& each) {
      return each.remote != nullptr && each.remote->started && each.remote->state == UCS_INPROGRESS;
    });
  }
  /// Eager bytes that the caller has received, of all time.
  [[nodiscard]] std::uint64_t consumed() const noexcept { return consumed_; }

  /// While set, eager bytes go there first. Null again before the receive returns.
  void set_destination(ucx_destination* to) noexcept { destination_ = to; }

  void deliver(std::span<const std::byte> bytes) {
    if (destination_ != nullptr && waiting_.empty()) {
      const std::size_t put = destination_->put(bytes.data(), bytes.size());
      consumed_ += put;
      bytes = bytes.subspan(put);
    }
    if (bytes.empty()) return;
    const bool fits = !waiting_.empty() && waiting_.back().remote == nullptr &&
                      waiting_.back().bytes.size() + bytes.size() <= most_together;
    if (!fits) waiting_.emplace_back();
    auto& last = waiting_.back().bytes;
    last.insert(last.end(), bytes.begin(), bytes.end());
  }
  void announce(void* descriptor, std::size_t size) {
    segment next;
    next.remote.reset(new ucx_rendezvous);
    next.remote->descriptor = descriptor;
    next.remote->size = size;
    waiting_.push_back(std::move(next));
  }

  /// Moves into `to` what is here. Returns the status of a fetch that has failed.
  [[nodiscard]] ucs_status_t take(ucx_destination& to) {
    while (!waiting_.empty() && to.got < to.wanted()) {
      segment& front = waiting_.front();
      ucx_rendezvous* const remote = front.remote.get();
      if (remote != nullptr) {
        if (!remote->started || remote->state == UCS_INPROGRESS) break;
        if (remote->state != UCS_OK) return remote->state;
      }
      if (remote != nullptr && remote->to != nullptr) {
        to.got += remote->size;
      } else {
        const auto& bytes = remote != nullptr ? remote->copy : front.bytes;
        const std::size_t put = to.put(bytes.data() + front.taken, bytes.size() - front.taken);
        front.taken += put;
        if (remote == nullptr) consumed_ += put;
        if (front.taken < bytes.size()) break;
      }
      waiting_.pop_front();
    }
    return UCS_OK;
  }

  /// Calls fetch(rendezvous, where) for those whose place in the caller's memory is known, and for
  /// the first one anyway if the caller wants a part of it now.
  template <typename Fetch>
  void start_fetches(const ucx_destination& to, Fetch fetch) {
    if (to.got < to.first.size) return start_first(to, fetch);
    std::size_t at = to.got - to.first.size;  // in `second`
    std::size_t limit = std::max(to.second.room, at == 0 && to.second.steady ? to.second.size : 0);
    for (segment& each : waiting_) {
      ucx_rendezvous* const remote = each.remote.get();
      if (remote != nullptr && !remote->started) {
        if (at + remote->size > limit) break;
        remote->to = to.second.data + at;
        fetch(*remote, remote->to);
      }
      at += (remote != nullptr ? remote->size : each.bytes.size()) - each.taken;
      limit = to.second.room;
    }
    start_first(to, fetch);
  }

  /// Calls release(descriptor) for what will not be fetched, and drops everything.
  template <typename Release>
  void discard(Release release) {
    for (segment& each : waiting_) {
      if (each.remote == nullptr) continue;
      if (!each.remote->started) release(each.remote->descriptor);
      else if (each.remote->state == UCS_INPROGRESS) abandon(each.remote);
    }
    waiting_.clear();
  }

 private:
  /// Small messages are appended to one another up to this size.
  static constexpr std::size_t most_together = std::size_t{64} << 10;

  struct segment {
    std::vector<std::byte> bytes;  ///< eager ones
    std::size_t taken = 0;
    std::unique_ptr<ucx_rendezvous> remote;
  };

  /// UCX cannot end this fetch: what it uses stays.
  static void abandon(std::unique_ptr<ucx_rendezvous>& fetched) noexcept {
    fetched->stream = nullptr;
    static_cast<void>(fetched.release());
  }
  template <typename Fetch>
  void start_first(const ucx_destination& to, Fetch fetch) {
    if (waiting_.empty() || to.got >= to.wanted()) return;
    ucx_rendezvous* const first = waiting_.front().remote.get();
    if (first == nullptr || first->started) return;
    first->copy.resize(first->size);
    fetch(*first, first->copy.data());
  }

  std::deque<segment> waiting_;
  ucx_destination* destination_ = nullptr;
  std::uint64_t consumed_ = 0;
};

}  // namespace parx::detail
