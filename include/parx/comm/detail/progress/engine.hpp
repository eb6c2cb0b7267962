// engine: runs one rank's part of one collective, over any network.
//
// step() moves what can move without blocking and returns whether anything did; the caller decides
// how to wait. All state between steps is byte counts, so a schedule streams: received bytes are
// reduced a segment at a time and sent on at once (the prefix rule of schedule/action.hpp).
// Threads: belongs to the thread that drives the group's progress.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <parx/comm/detail/progress/call_header.hpp>
#include <parx/comm/detail/progress/collective_data.hpp>
#include <parx/comm/detail/progress/host_meeting.hpp>
#include <parx/comm/detail/progress/workspace.hpp>
#include <parx/comm/schedule/execution_plan.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class engine {
 public:
  /// Bytes received by one system call and reduced at a time: large enough to amortise the system
  /// call, small enough that received bytes are still in the L2 cache when they are reduced.
  static constexpr std::size_t segment_bytes = std::size_t{256} << 10;

  /// Prepares a run of `plan`. `plan`, `data` and `header` must outlive the run; unset fields of
  /// `data` are filled in. Opens the links, with `patience` as in link_to. If the plan has a
  /// barrier, `barrier` must be open.
  void start(const execution_plan& plan, collective_data& data, const call_header& header,
             links& network, host_barrier& barrier, std::chrono::milliseconds patience) {
    plan_ = &plan;
    data_ = &data;
    header_ = &header;
    if (plan.has_barrier) meeting_.start(network, barrier, header, patience);
    memory_.start(plan.steps, data, network.rank(), network.size());
    only_sends_ = true;
    overwrites_input_ = data.input == data.output && data.reduce;
    remaining_ = plan.steps.actions.size();
    states_.clear();
    states_.resize(remaining_);
    first_local_ = 0;
    lane_count_ = plan.lanes.size();
    if (lanes_.size() < lane_count_) lanes_.resize(lane_count_);
    for (std::size_t i = 0; i < lane_count_; ++i) {
      lane& state = lanes_[i];
      const lane_plan& traffic = plan.lanes[i];
      state.traffic = &traffic;
      only_sends_ &= traffic.receives.empty();
      state.stream = &network.link_to(traffic.peer, channel::collective, patience);
      if (data.counts_differ) state.own_header = header_for(traffic.sends);
      state.next_send = state.next_receive = 0;
      state.header_sent = state.header_received = 0;
      state.staged = 0;
      state.staging_size = std::min(segment_bytes, traffic.largest_reduction * data.element_size);
      workspace::enlarge(state.staging, state.staging_size);
    }
  }

  [[nodiscard]] bool done() const noexcept { return remaining_ == 0; }

  /// Moves what can move now. Throws link_lost, and header_mismatch if a peer is in another call.
  bool step() {
    bool progressed = !plan_->local.empty() && run_local();
    for (std::size_t i = 0; i < lane_count_; ++i) {
      progressed |= send_some(lanes_[i]);
      progressed |= receive_some(lanes_[i]);
    }
    if (progressed && done()) memory_.end();
    return progressed;
  }

  /// Appends the events that can end a sleep.
  void interests(std::vector<link_interest>& out) {
    for (std::size_t i = 0; i < lane_count_; ++i) {
      const lane& state = lanes_[i];
      const link_interest next{state.traffic->peer, channel::collective, can_take_bytes(state),
                               can_give_bytes(state)};
      if (next.readable || next.writable) out.push_back(next);
    }
    meeting_.interests(out);
  }

  /// Peers whose next bytes this rank could take, and those that have yet to arrive at a barrier;
  /// if there are none, those to which it could send. All else waits for these. A peer whose
  /// message is here, and waits for that of another, is not missing: it may have left.
  [[nodiscard, gnu::cold]] std::vector<int> missing_peers() const {
    std::vector<int> senders, receivers;
    for (std::size_t i = 0; i < lane_count_; ++i) {
      const lane& state = lanes_[i];
      if (can_take_bytes(state)) senders.push_back(state.traffic->peer);
      if (can_give_bytes(state)) receivers.push_back(state.traffic->peer);
    }
    meeting_.add_missing(senders);
    return senders.empty() ? receivers : senders;
  }

  /// From any thread.
  [[nodiscard]] std::size_t bytes_received() const noexcept {
    return bytes_received_.load(relaxed);
  }
  [[nodiscard]] std::size_t bytes_sent() const noexcept { return bytes_sent_.load(relaxed); }

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;

  struct lane {
    const lane_plan* traffic = nullptr;
    link* stream = nullptr;
    std::size_t next_send = 0;
    std::size_t next_receive = 0;
    std::size_t header_sent = 0;
    std::size_t header_received = 0;
    call_header own_header{};  ///< sent, if counts differ between lanes
    call_header incoming_header{};
    std::vector<std::byte> staging;  ///< received bytes, not yet reduced
    std::size_t staging_size = 0;
    std::size_t staged = 0;
  };

  struct action_state {
    std::size_t bytes = 0;
    bool complete = false;
  };

  [[nodiscard]] const action& action_at(std::int32_t index) const noexcept {
    return plan_->steps.actions[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::size_t done_at(std::int32_t index) const noexcept {
    return states_[static_cast<std::size_t>(index)].bytes;
  }
  [[nodiscard]] std::size_t total(std::int32_t index) const noexcept {
    return action_at(index).count() * data_->element_size;
  }
  [[nodiscard]] static std::int32_t current(const std::vector<std::int32_t>& list,
                                            std::size_t position) noexcept {
    return position < list.size() ? list[position] : no_action;
  }
  [[nodiscard]] bool complete(std::int32_t index) const noexcept {
    return states_[static_cast<std::size_t>(index)].complete;
  }

  /// How many bytes of an action its dependencies allow to move.
  [[nodiscard]] std::size_t movable(std::int32_t index) const noexcept {
    const action& step = action_at(index);
    std::size_t limit = total(index);
    for (const std::int32_t dependency : step.after) {
      if (dependency == no_action || complete(dependency)) continue;
      if (action_at(dependency).count() != step.count()) return 0;
      limit = std::min(limit, done_at(dependency));
    }
    return limit;
  }
  /// Whether all dependencies are complete; an action without bytes waits for this.
  [[nodiscard]] bool ready(std::int32_t index) const noexcept {
    for (const std::int32_t dependency : action_at(index).after) {
      if (dependency != no_action && !complete(dependency)) return false;
    }
    return true;
  }
  /// How many bytes of a receive there is room for now. Bytes to be reduced are staged even if the
  /// dependencies do not permit the reduction yet: otherwise two ranks that exchange what they
  /// overwrite would deadlock over a link without buffers.
  [[nodiscard]] std::size_t receivable(const lane& state, std::int32_t index) const noexcept {
    if (action_at(index).kind == action_kind::receive_reduce) {
      return std::min(total(index) - done_at(index), state.staging_size) - state.staged;
    }
    return std::min(movable(index) - done_at(index), segment_bytes);
  }

  /// Whether the next bytes of the lane's peer could be received.
  [[nodiscard]] bool can_take_bytes(const lane& state) const noexcept {
    const auto index = current(state.traffic->receives, state.next_receive);
    return index != no_action &&
           (state.header_received < header_size || receivable(state, index) > 0);
  }
  /// Whether there is something to send to the lane's peer.
  [[nodiscard]] bool can_give_bytes(const lane& state) const noexcept {
    const auto index = current(state.traffic->sends, state.next_send);
    return index != no_action &&
           (movable(index) > done_at(index) || (total(index) == 0 && ready(index)));
  }

  /// Only the driving thread adds, so no locked instruction is needed.
  static void count(std::atomic<std::size_t>& counter, std::size_t bytes) noexcept {
    counter.store(counter.load(relaxed) + bytes, relaxed);
  }
  void advance(std::int32_t index, std::size_t bytes) noexcept {
    states_[static_cast<std::size_t>(index)].bytes += bytes;
  }
  void finish(std::int32_t index) noexcept {
    states_[static_cast<std::size_t>(index)].complete = true;
    --remaining_;
  }

  bool run_local() {
    bool progressed = false;
    bool all_before = true;  // complete
    for (std::size_t i = first_local_; i < plan_->local.size(); ++i) {
      const std::int32_t index = plan_->local[i];
      if (!complete(index) && ready(index)) {
        const action& step = action_at(index);
        if (step.kind == action_kind::barrier) {
          progressed |= meeting_.arrive();
          if (!meeting_.all_have_arrived()) break;  // all later local actions wait for it
        } else {
          memory_.perform(step);
        }
        advance(index, total(index));
        finish(index);
        progressed = true;
      }
      all_before &= complete(index);
      if (all_before) first_local_ = i + 1;
    }
    return progressed;
  }

  bool send_some(lane& state) {
    bool progressed = false;
    for (;;) {
      const std::int32_t index = current(state.traffic->sends, state.next_send);
      if (index == no_action) return progressed;
      const std::size_t size = total(index);
      const std::size_t permitted = movable(index) - done_at(index);
      if (size == 0 ? !ready(index) : permitted == 0) return progressed;
      const call_header& header = data_->counts_differ ? state.own_header : *header_;
      const const_bytes head{reinterpret_cast<const std::byte*>(&header) + state.header_sent,
                             header_size - state.header_sent};
      const region& from = action_at(index).from;
      const const_bytes body{.data = memory_.read_at(from) + done_at(index),
                             .size = permitted,
                             .to_follow = size - done_at(index) - permitted,
                             .recently_written = overwrites_input_ || from.where != place::input,
                             .send_only = only_sends_,
                             .receiver_reduces = static_cast<bool>(data_->reduce)};
      if (head.size + body.size > 0) {
        std::size_t sent = state.stream->try_send(head, body);
        if (sent == 0) return progressed;
        progressed = true;
        count(bytes_sent_, sent);
        const std::size_t of_header = std::min(sent, head.size);
        state.header_sent += of_header;
        sent -= of_header;
        advance(index, sent);
        if (of_header + sent < head.size + body.size) {
          return progressed;  // the link is full
        }
      }
      if (state.header_sent == header_size && done_at(index) == size) {
        finish(index);
        ++state.next_send;
        progressed = true;
        continue;
      }
      return progressed;  // let the other direction move
    }
  }

  bool receive_some(lane& state) {
    bool progressed = false;
    for (;;) {
      const std::int32_t index = current(state.traffic->receives, state.next_receive);
      if (index == no_action) return progressed;
      const bool reducing = action_at(index).kind == action_kind::receive_reduce;
      const mutable_bytes head{
          reinterpret_cast<std::byte*>(&state.incoming_header) + state.header_received,
          header_size - state.header_received};
      const mutable_bytes body{reducing ? state.staging.data() + state.staged
                                        : memory_.write_at(action_at(index).to) + done_at(index),
                               receivable(state, index),
                               reducing ? 0 : movable(index) - done_at(index),
                               !plan_->awaited[static_cast<std::size_t>(index)], state.staged == 0};
      std::size_t received = 0;
      if (head.size + body.size > 0) {
        received = state.stream->try_receive(head, body);
        count(bytes_received_, received);
        progressed |= received > 0;
        const std::size_t of_header = std::min(received, head.size);
        if (of_header > 0) {
          state.header_received += of_header;
          if (state.header_received == header_size) check_header(state);
        }
        const std::size_t of_body = received - of_header;
        if (reducing) {
          state.staged += of_body;
        } else {
          advance(index, of_body);
        }
      }
      if (reducing) progressed |= reduce_staged(state, index);
      if (state.header_received == header_size && done_at(index) == total(index) &&
          (total(index) > 0 || ready(index))) {
        finish(index);
        ++state.next_receive;
        progressed = true;
        if (received >= head.size + body.size) continue;
      }
      return progressed;
    }
  }

  /// Reduces the staged elements that are complete and whose dependencies permit it. Waiting for a
  /// full segment would delay the next ranks whenever the link is slow.
  bool reduce_staged(lane& state, std::int32_t index) {
    const std::size_t permitted = std::min(state.staged, movable(index) - done_at(index));
    const std::size_t count = permitted / data_->element_size;
    const std::size_t whole = count * data_->element_size;
    if (whole == 0) return false;
    memory_.reduce(action_at(index), done_at(index), state.staging.data(), count);
    state.staged -= whole;
    if (state.staged > 0) {
      std::memmove(state.staging.data(), state.staging.data() + whole, state.staged);
    }
    advance(index, whole);
    return true;
  }

  void check_header(const lane& state) {
    if (!data_->counts_differ) {
      if (state.incoming_header.matches(*header_)) return;
      throw header_mismatch{state.traffic->peer, *header_, state.incoming_header};
    }
    const call_header expected = header_for(state.traffic->receives);
    if (state.incoming_header.matches(expected)) return;
    throw header_mismatch{state.traffic->peer, expected, state.incoming_header};
  }

  /// If only the two ranks of a link know how many elements it carries, its header has that count.
  [[nodiscard]] call_header header_for(const std::vector<std::int32_t>& actions) const noexcept {
    call_header header = *header_;
    for (const std::int32_t index : actions) header.count += action_at(index).count();
    return header;
  }

  const execution_plan* plan_ = nullptr;
  collective_data* data_ = nullptr;
  const call_header* header_ = nullptr;
  std::vector<action_state> states_;  ///< by action
  std::size_t remaining_ = 0;
  std::size_t first_local_ = 0;  ///< all entries of plan_->local before it are complete
  workspace memory_;
  std::vector<lane> lanes_;
  std::size_t lane_count_ = 0;
  host_meeting meeting_;
  bool overwrites_input_ = false;
  bool only_sends_ = false;
  std::atomic<std::size_t> bytes_received_{0};
  std::atomic<std::size_t> bytes_sent_{0};
};

}  // namespace parx::detail
