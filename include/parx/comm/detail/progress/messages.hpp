// messages: point-to-point traffic of one group.
//
// Each message is a header (with tag and length), its extents if the sender gave any, and its
// bytes, on links of their own. A receive is matched by sender and tag, in the order of sending. An
// unexpected message, for which no receive has been posted, is buffered up to a limit, so that two
// ranks may both send before they receive. It is buffered only if nothing else moves, because the
// rank may post the receive as soon as its present call has ended. A receive from any rank is
// queued for all ranks until the first message with its tag begins to arrive. Threads: belongs to
// the thread that drives the group's progress.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/detail/progress/call_header.hpp>
#include <parx/comm/detail/progress/message_lane.hpp>
#include <parx/comm/detail/progress/wait_report.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class messages {
 public:
  /// Bytes of unexpected messages that are buffered before senders have to wait.
  static constexpr std::size_t unexpected_limit = std::size_t{64} << 20;

  void post(call& request, links& network) {
    network_ = &network;
    if (request.peer == any_source && !post_to_all(request)) return;
    if (request.peer == network.rank()) {
      post_to_self(request);
      return;
    }
    message_lane& state = lane_of(request.peer, request);
    if (request.what == operation::send) {
      state.sends.push_back(&request);
    } else {
      state.receives.push_back(&request);
      if (!match_kept(state, request) && state.lost) {
        throw *state.lost;
      }
    }
  }

  /// Why no more messages can come from that rank; null while they can.
  [[nodiscard]] const link_lost* loss_of(int peer) const noexcept {
    const auto found = lanes_.find(peer);
    return found != lanes_.end() && found->second.lost ? &*found->second.lost : nullptr;
  }
  /// Messages that have come from that rank, whole ones.
  [[nodiscard]] std::uint32_t received_from(int peer) const noexcept {
    const auto found = lanes_.find(peer);
    return found != lanes_.end() ? found->second.received : 0;
  }
  /// Whether messages of that rank are looked for: from the first operation with it on.
  [[nodiscard]] bool knows(int peer) const noexcept { return lanes_.contains(peer); }
  /// Whether no message was ever sent or received.
  [[nodiscard]] bool unused() const noexcept { return lanes_.empty(); }
  [[nodiscard]] bool idle() const noexcept {
    return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& each) {
      return each.second.sends.empty() && each.second.receives.empty();
    });
  }

  /// Calls visit(peer, header) for each message that has begun to arrive and that no receive takes.
  template <typename Visit>
  void for_each_unexpected(Visit visit) const {
    for (const auto& [peer, state] : lanes_) {
      for (const kept_message& each : state.kept) visit(peer, each.header);
      if (state.is_unexpected()) visit(peer, state.arriving);
    }
  }

  /// From any thread.
  [[nodiscard]] std::size_t bytes_sent() const noexcept { return bytes_sent_.load(relaxed); }
  [[nodiscard]] std::size_t bytes_received() const noexcept {
    return bytes_received_.load(relaxed);
  }

  /// Calls give(request) for the requests that have succeeded since the last call.
  template <typename Give>
  void hand_back_finished(Give give) {
    for (call* each : finished_) give(*each);
    finished_.clear();  // keeps its capacity: messages in a loop allocate nothing
  }

  /// Moves what can move now. Throws message_mismatch, and link_lost only if a pending request
  /// needs that link.
  bool step() {
    bool progressed = false;
    for (auto& [peer, state] : lanes_) {
      if (state.stream == nullptr) continue;
      progressed |= send_some(state);
      progressed |= receive_some(state);
    }
    // The reply to a message may arrive in the step in which its send completes. The program may
    // post the receive next: buffering the reply now would copy it twice.
    if (progressed) return true;
    for (auto& [peer, state] : lanes_) {
      if (state.is_unexpected() && keep(state)) progressed |= receive_some(state);
    }
    return progressed;
  }

  void interests(std::vector<link_interest>& out) const {
    for (const auto& [peer, state] : lanes_) {
      if (state.stream == nullptr || state.lost) continue;
      // Also without a pending receive: a message is then buffered, so that its sender can go on.
      const link_interest next{peer, channel::message, !state.is_unexpected(),
                               !state.sends.empty()};
      if (next.readable || next.writable) out.push_back(next);
    }
  }

  /// Calls `visit` on every unfinished request, for deadlines and failures.
  template <typename Visit>
  void for_each_pending(Visit visit) const {
    for (const auto& [peer, state] : lanes_) {
      for (call* each : state.sends) visit(*each);
      for (call* each : state.receives) visit(*each);
    }
  }
  /// Calls wait(peer, kind, messages received from it) for each rank that a message waits for: of a
  /// receive from any rank, for each that may send. Calls refused(peer) for a rank whose message is
  /// neither received nor buffered.
  template <typename Wait, typename Refused>
  void for_each_wait(Wait wait, Refused refused) const {
    for (const auto& [peer, state] : lanes_) {
      if (!state.sends.empty()) wait(peer, message_wait::send, state.received);
      if (!state.receives.empty() && !state.lost) wait(peer, message_wait::receive, state.received);
      if (state.is_unexpected() && state.receives.empty() && is_too_much(state)) refused(peer);
    }
  }
  void forget_all() {
    lanes_.clear();
    finished_.clear();
    kept_bytes_ = 0;
  }

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;

  message_lane& lane_of(int peer, const call& request) {
    message_lane& state = lanes_[peer];
    if (state.stream == nullptr) {
      state.peer = peer;
      if (peer != network_->rank()) {
        state.stream = &network_->link_to(peer, channel::message, request.timeout);
      }
    }
    return state;
  }

  /// Only the driving thread adds, so no locked instruction is needed.
  static void count(std::atomic<std::size_t>& counter, std::size_t bytes) noexcept {
    counter.store(counter.load(relaxed) + bytes, relaxed);
  }

  /// Queues a receive for every rank. True if a matching message is already here: request.peer is
  /// then its sender, and the receive still has to be posted.
  bool post_to_all(call& request) {
    const int world = network_->size();
    for (int peer = 0; peer < world; ++peer) {
      if (!opens(peer, request)) continue;
      message_lane& state = lanes_[peer];
      if (state.find_kept(request) == state.kept.end()) continue;
      request.peer = peer;
      return true;
    }
    for (int peer = 0; peer < world; ++peer) lanes_[peer].receives.push_back(&request);
    if (all_lost()) {
      throw link_lost(lanes_.rbegin()->first, "it closed the connection, as all others did",
                      link_end::closed);
    }
    return false;
  }
  /// Opens the lane of a rank that may send what a receive from any rank takes. False where that
  /// rank has left, or is lost: the message may come from another one.
  bool opens(int peer, const call& request) {
    try {
      static_cast<void>(lane_of(peer, request));
      return true;
    } catch (const link_lost& lost) {
      lanes_[peer].lost = lost;
      return false;
    }
  }
  /// A message for this receive has begun to arrive: removes it from the other ranks' queues.
  void claim(call& receive, int peer) {
    if (receive.peer != any_source) return;
    receive.peer = peer;
    for (auto& [other, state] : lanes_) {
      if (other != peer) std::erase(state.receives, &receive);
    }
  }
  [[nodiscard]] bool all_lost() const noexcept {
    const auto is_lost = [](const auto& each) {
      return each.second.lost || each.second.stream == nullptr;
    };
    return network_->size() > 1 && std::all_of(lanes_.begin(), lanes_.end(), is_lost);
  }
  /// Whether a pending request can only complete over this link.
  [[nodiscard]] bool is_needed(const message_lane& state) const noexcept {
    const auto for_this = [](const call* each) { return each->peer != any_source; };
    return !state.sends.empty() ||
           std::any_of(state.receives.begin(), state.receives.end(), for_this) ||
           (!state.receives.empty() && all_lost());
  }

  void post_to_self(call& request) {
    message_lane& state = lane_of(request.peer, request);
    if (request.what == operation::recv) {
      state.receives.push_back(&request);
      match_kept(state, request);
      return;
    }
    kept_message message{request.header,
                         request.extents,
                         {request.memory, request.memory + request.bytes},
                         request.bytes};
    kept_bytes_ += request.bytes;
    state.kept.push_back(std::move(message));
    ++state.received;
    if (call* receive = state.matching_receive(request.header)) {
      claim(*receive, request.peer);
      match_kept(state, *receive);
    }
    finished_.push_back(&request);
  }

  /// Matches a new receive with a buffered message, which may still be arriving. False if none.
  bool match_kept(message_lane& state, call& receive) {
    const auto found = state.find_kept(receive);
    if (found == state.kept.end()) return false;
    accept(receive, state.peer, found->header, found->extents);
    if (found->filled > 0) std::memcpy(receive.memory, found->bytes.data(), found->filled);
    if (found->filled == found->bytes.size()) {
      std::erase(state.receives, &receive);
      finished_.push_back(&receive);
    } else {
      state.target = &receive;
      state.arriving_kept = false;
    }
    kept_bytes_ -= found->bytes.size();
    state.kept.erase(found);
    return true;
  }

  bool send_some(message_lane& state) {
    bool progressed = false;
    while (!state.sends.empty()) {
      call& front = *state.sends.front();
      const std::size_t of_header = std::min(state.front_sent, header_size);
      const const_bytes head{reinterpret_cast<const std::byte*>(&front.header) + of_header,
                             header_size - of_header};
      const std::size_t front_size = header_size + front.extents.axes() * sizeof(std::size_t);
      if (front_size > header_size && state.front_sent < front_size) {
        const std::size_t done = state.front_sent - of_header;  // of the extents
        const auto* const extents = reinterpret_cast<const std::byte*>(front.extents.begin());
        const std::size_t sent =
            state.stream->try_send(head, {.data = extents + done,
                                          .size = front_size - header_size - done,
                                          .more_follows = true});
        if (sent == 0) return progressed;
        count(bytes_sent_, sent);
        progressed = true;
        state.front_sent += sent;
        if (state.front_sent < front_size) continue;
      }
      const const_bytes body{.data = front.memory + state.body_sent,
                             .size = front.bytes - state.body_sent,
                             .more_follows = state.sends.size() > 1};
      const const_bytes rest = state.front_sent < header_size ? head : const_bytes{};
      if (rest.size + body.size > 0) {
        const std::size_t sent = state.stream->try_send(rest, body);
        if (sent == 0) return progressed;
        count(bytes_sent_, sent);
        progressed = true;
        const std::size_t of_rest = std::min(sent, rest.size);
        state.front_sent += of_rest;
        state.body_sent += sent - of_rest;
      }
      if (state.front_sent == front_size && state.body_sent == front.bytes) {
        finished_.push_back(&front);
        state.sends.erase(state.sends.begin());
        state.front_sent = state.body_sent = 0;
      }
    }
    return progressed;
  }

  bool receive_some(message_lane& state) {
    if (state.lost) return false;
    bool progressed = false;
    try {
      while (receive_piece(state)) progressed = true;
    } catch (const link_lost& lost) {
      // A peer may leave after its last message: an error only if a request still needs the link.
      state.lost = lost;
      if (is_needed(state)) throw;
    }
    return progressed;
  }

  bool receive_piece(message_lane& state) {
    if (const std::size_t front = state.front_size(); state.front_received < front) {
      const std::size_t done = state.front_received;
      const std::size_t got =
          front == header_size
              ? state.stream->try_receive(
                    {reinterpret_cast<std::byte*>(&state.arriving) + done, front - done}, {})
              : state.stream->try_receive(
                    {}, {reinterpret_cast<std::byte*>(state.extents.data()) + done - header_size,
                         front - done});
      count(bytes_received_, got);
      state.front_received += got;
      if (state.front_received == header_size) state.check_header();
      if (state.front_received < state.front_size()) return got > 0;
      state.body_received = 0;
      state.body_size = body_bytes(state.arriving);
      find_receive(state);
      return true;
    }
    if (state.is_unexpected() && !find_receive(state)) return false;
    std::byte* to = state.target != nullptr ? state.target->memory : state.kept.back().bytes.data();
    const std::size_t left = state.body_size - state.body_received;
    const std::size_t got =
        left == 0 ? 0
                  : state.stream->try_receive({}, {.data = to + state.body_received,
                                                   .size = left,
                                                   .steady = state.target != nullptr});
    count(bytes_received_, got);
    state.body_received += got;
    if (state.target == nullptr) state.kept.back().filled = state.body_received;
    if (state.body_received < state.body_size) return got > 0;
    if (state.target != nullptr) {
      finished_.push_back(state.target);
      std::erase(state.receives, state.target);
    }
    ++state.received;
    state.target = nullptr;
    state.arriving_kept = false;
    state.front_received = 0;
    return true;
  }

  /// Matches the arriving message with a posted receive. False if there is none.
  bool find_receive(message_lane& state) {
    call* const receive = state.matching_receive(state.arriving);
    if (receive == nullptr) return false;
    claim(*receive, state.peer);
    accept(*receive, state.peer, state.arriving, state.arriving_extents());
    state.target = receive;
    return true;
  }

  [[nodiscard]] bool is_too_much(const message_lane& state) const noexcept {
    return kept_bytes_ + state.body_size > unexpected_limit && kept_bytes_ > 0;
  }

  /// Allocates a buffer for an unexpected message. False while too much is buffered already.
  bool keep(message_lane& state) {
    // A posted receive did not match this message: it is for a later one, so this one must move on.
    if (is_too_much(state) && state.receives.empty()) return false;
    kept_message message{state.arriving, state.arriving_extents(), {}, 0};
    message.bytes.resize(state.body_size);
    kept_bytes_ += state.body_size;
    state.kept.push_back(std::move(message));
    state.arriving_kept = true;
    return true;
  }

  links* network_ = nullptr;
  std::map<int, message_lane> lanes_;
  std::vector<call*> finished_;
  std::size_t kept_bytes_ = 0;
  std::atomic<std::size_t> bytes_sent_{0};
  std::atomic<std::size_t> bytes_received_{0};
};

}  // namespace parx::detail
