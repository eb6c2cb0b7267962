// engine: runs one rank's part of one collective, over any transport.
//
// step() moves whatever can move without blocking and says whether anything did; the caller decides
// how to wait. All state between steps is byte counts, so that a schedule streams: received bytes are
// reduced a segment at a time and sent on at once (the prefix rule of schedule/action.hpp).
// Threads: belongs to whoever drives the group's progress.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/schedule/plan.hpp>
#include <parx/transport/detail/frame.hpp>
#include <parx/transport/transport.hpp>
#include <parx/types/detail/stream_copy.hpp>
#include <parx/types/reduce.hpp>

namespace parx::detail {

/// A buffer that lies in a shared area, at the same offset on every rank.
struct shared_view {
  std::shared_ptr<const shared_area> area{};
  std::size_t offset = 0;
  [[nodiscard]] std::byte* of(int rank) const noexcept {
    return area->of_rank[static_cast<std::size_t>(rank)] + offset;
  }
};

/// How two elements become one: a kernel of types/reduce.hpp, or a function of the user's.
struct reduction {
  reduce_function kernel = nullptr;
  void (*user)(const void* context, void* out, const void* a, const void* b, std::size_t count) = nullptr;
  const void* context = nullptr;

  explicit operator bool() const noexcept { return kernel != nullptr || user != nullptr; }
  void operator()(void* out, const void* a, const void* b, std::size_t count) const {
    if (kernel != nullptr) return kernel(out, a, b, count);
    user(context, out, a, b, count);
  }
};

/// Several buffers that are one to a collective: packed when its run starts, unpacked when it ends. The
/// spans are borrowed; without inputs nothing is packed.
struct packing {
  std::span<const const_bytes> inputs{};
  std::span<const mutable_bytes> outputs{};  ///< without them the packed copy is only read
  std::size_t blocks = 1;       ///< of all inputs' size in the packed copy: the ranks of an all_gather
  std::size_t input_block = 0;  ///< where in it the inputs go
};

/// A collective's buffers and arithmetic, without types.
struct collective_data {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t element_size = 1;
  reduction reduce{};
  scale_function scale = nullptr;  ///< null where the result is not scaled
  double factor = 1;
  const double* divide_by = nullptr;  ///< makes the factor when the run starts
  packing pack{};
  bool counts_differ = false;  ///< what goes over a link is known to its two ends only (all_to_all_v)

  // For algorithms in shared buffers.
  shared_view shared_input{};
  shared_view shared_output{};
  shared_view staging{};  ///< the scratch of staged algorithms
};

/// Two ranks called different things.
struct header_mismatch {
  int peer;
  call_header mine;
  call_header theirs;
};

class engine {
 public:
  /// Bytes received by one system call, and reduced at one time: large enough to make the call's cost
  /// small, small enough that what was received is still in the L2 cache when it is reduced.
  static constexpr std::size_t segment_bytes = std::size_t{256} << 10;

  /// Prepares the run of `steps`, which must outlive it as `data` and `header` must; what these leave open it
  /// fills in. Opens the links that it uses.
  void start(const plan& steps, collective_data& data, call_header& header, transport& network) {
    plan_ = &steps;
    data_ = &data;
    header_ = &header;
    if (!data.pack.inputs.empty()) pack();
    world_ = network.size();
    only_sends_ = true;
    overwrites_input_ = data.input == data.output && data.reduce;
    if (data.divide_by != nullptr) {
      data.factor = *data.divide_by != 0 ? 1 / *data.divide_by : 0;
      if (data.factor == 1) data.scale = nullptr;
    }
    remaining_ = steps.steps.actions.size();
    progress_.assign(remaining_, {});
    const bool staged = data.staging.area != nullptr;
    if (!staged) enlarge(scratch_, steps.steps.scratch_count * data.element_size);
    scratch_at_ = staged ? data.staging.of(network.rank()) : scratch_.data();
    lane_count_ = steps.lanes.size();
    if (lanes_.size() < lane_count_) lanes_.resize(lane_count_);
    for (std::size_t i = 0; i < lane_count_; ++i) {
      lane& state = lanes_[i];
      const lane_plan& traffic = steps.lanes[i];
      state.traffic = &traffic;
      only_sends_ &= traffic.receives.empty();
      state.stream = &network.link_to(traffic.peer, channel::collective);
      state.next_send = state.next_receive = 0;
      state.header_sent = state.header_received = 0;
      state.staged = 0;
      state.staging_size = std::min(segment_bytes, traffic.largest_reduction * data.element_size);
      enlarge(state.staging, state.staging_size);
    }
  }

  [[nodiscard]] bool done() const noexcept { return remaining_ == 0; }

  /// Moves what can be moved now. Throws link_lost, and header_mismatch when a peer's call differs.
  bool step() {
    bool progressed = !plan_->local.empty() && run_local();
    for (std::size_t i = 0; i < lane_count_; ++i) {
      if (data_->counts_differ) count_in_header(lanes_[i].traffic->sends);
      progressed |= send_some(lanes_[i]);
      progressed |= receive_some(lanes_[i]);
    }
    if (progressed && done() && !data_->pack.outputs.empty()) unpack();
    return progressed;
  }

  /// Appends what a sleeper must wait for.
  void interests(std::vector<link_interest>& out) const {
    for (std::size_t i = 0; i < lane_count_; ++i) {
      const lane& state = lanes_[i];
      link_interest next{state.stream, false, false};
      if (const auto index = current(state.traffic->receives, state.next_receive); index >= 0) {
        next.readable = state.header_received < frame_size || receivable(state, index) > 0;
      }
      if (const auto index = current(state.traffic->sends, state.next_send); index >= 0) {
        next.writable = movable(index) > done_at(index) || (total(index) == 0 && ready(index));
      }
      if (next.readable || next.writable) out.push_back(next);
    }
  }

  /// Peers that this rank still expects something from.
  [[nodiscard]] std::vector<int> awaited_peers() const {
    std::vector<int> peers;
    for (std::size_t i = 0; i < lane_count_; ++i) {
      if (lanes_[i].next_receive < lanes_[i].traffic->receives.size()) {
        peers.push_back(lanes_[i].traffic->peer);
      }
    }
    return peers;
  }
  /// Peers that have not taken everything yet.
  [[nodiscard]] std::vector<int> unserved_peers() const {
    std::vector<int> peers;
    for (std::size_t i = 0; i < lane_count_; ++i) {
      if (lanes_[i].next_send < lanes_[i].traffic->sends.size()) {
        peers.push_back(lanes_[i].traffic->peer);
      }
    }
    return peers;
  }

  /// From any thread.
  [[nodiscard]] std::size_t bytes_received() const noexcept { return bytes_received_.load(relaxed); }
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
    call_header incoming_header{};
    std::vector<std::byte> staging;  ///< received, not yet reduced
    std::size_t staging_size = 0;
    std::size_t staged = 0;
  };

  struct progress {
    std::size_t bytes = 0;
    bool complete = false;
  };

  static void enlarge(std::vector<std::byte>& buffer, std::size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
  }
  [[nodiscard]] const action& action_at(std::int32_t index) const noexcept {
    return plan_->steps.actions[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::size_t done_at(std::int32_t index) const noexcept {
    return progress_[static_cast<std::size_t>(index)].bytes;
  }
  [[nodiscard]] std::size_t total(std::int32_t index) const noexcept {
    return action_at(index).count() * data_->element_size;
  }
  [[nodiscard]] static std::int32_t current(const std::vector<std::int32_t>& list,
                                            std::size_t position) noexcept {
    return position < list.size() ? list[position] : no_action;
  }
  [[nodiscard]] bool complete(std::int32_t index) const noexcept {
    return progress_[static_cast<std::size_t>(index)].complete;
  }

  /// How many bytes of an action its dependencies permit.
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
  /// Whether every dependency is complete: what an action without bytes waits for.
  [[nodiscard]] bool ready(std::int32_t index) const noexcept {
    for (const std::int32_t dependency : action_at(index).after) {
      if (dependency != no_action && !complete(dependency)) return false;
    }
    return true;
  }
  /// How many bytes of a receive there is room for now. What is to be reduced is staged whether its
  /// dependencies permit the reduction yet or not: two ranks that exchange what they overwrite would
  /// otherwise wait for each other over a link that keeps nothing.
  [[nodiscard]] std::size_t receivable(const lane& state, std::int32_t index) const noexcept {
    if (action_at(index).kind == action_kind::receive_reduce) {
      return std::min(total(index) - done_at(index), state.staging_size) - state.staged;
    }
    return std::min(movable(index) - done_at(index), segment_bytes);
  }
  [[nodiscard]] const std::byte* read_at(const region& where) const noexcept {
    const std::size_t offset = where.offset * data_->element_size;
    if (where.where == place::input) return data_->input + offset;
    return where.where == place::output ? data_->output + offset : scratch_at_ + offset;
  }
  [[nodiscard]] std::byte* write_at(const region& where) noexcept {
    const std::size_t offset = where.offset * data_->element_size;
    return where.where == place::output ? data_->output + offset : scratch_at_ + offset;
  }

  /// Only the driver adds, so that no locked instruction is needed.
  static void count(std::atomic<std::size_t>& counter, std::size_t bytes) noexcept {
    counter.store(counter.load(relaxed) + bytes, relaxed);
  }
  void advance(std::int32_t index, std::size_t bytes) noexcept {
    progress_[static_cast<std::size_t>(index)].bytes += bytes;
  }
  void finish(std::int32_t index) noexcept {
    progress_[static_cast<std::size_t>(index)].complete = true;
    --remaining_;
  }

  bool run_local() {
    bool progressed = false;
    for (const std::int32_t index : plan_->local) {
      if (complete(index) || !ready(index)) continue;
      const action& step = action_at(index);
      switch (step.kind) {
        case action_kind::fetch: copy_bytes(write_at(step.to), shared_at(step.from, step.peer), total(index)); break;
        case action_kind::spread: spread(step, total(index)); break;
        case action_kind::combine: combine(step, false); break;
        case action_kind::combine_for_all: combine(step, true); break;
        default:
          copy_bytes(write_at(step.to), read_at(step.from), total(index));
          if (step.completes && data_->scale != nullptr) {
            data_->scale(write_at(step.to), step.count(), data_->factor);
          }
      }
      advance(index, total(index));
      finish(index);
      progressed = true;
    }
    return progressed;
  }

  static void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    if (to == from || bytes == 0) return;
    if (bytes >= least_streamed) return stream_copy(to, from, bytes);
    std::memcpy(to, from, bytes);
  }
  [[nodiscard]] std::byte* shared_at(const region& where, int rank) const noexcept {
    const shared_view& buffer = where.where == place::input ? data_->shared_input : data_->shared_output;
    return (where.where == place::scratch ? data_->staging : buffer).of(rank) + where.offset * data_->element_size;
  }

  /// In blocks that stay in the cache until all ranks have them, so that the source is read once.
  void spread(const action& step, std::size_t bytes) {
    static constexpr std::size_t block_bytes = std::size_t{64} << 10;
    const std::byte* from = read_at(step.from);
    for (std::size_t done = 0; done < bytes; done += block_bytes) {
      const std::size_t size = std::min(block_bytes, bytes - done);
      for (int rank = 0; rank < world_; ++rank) {
        std::byte* to = shared_at(step.to, rank) + done;
        if (to == from + done) continue;
        if (bytes >= least_streamed) stream_copy(to, from + done, size);
        else std::memcpy(to, from + done, size);
      }
    }
  }

  /// One pass over all ranks' buffers, in blocks that stay in the first-level cache until they are handed
  /// out. The result is written last: it may overwrite this rank's input.
  void combine(const action& step, bool for_all) {
    static constexpr std::size_t block_bytes = std::size_t{8} << 10;
    const std::size_t block = std::max<std::size_t>(1, block_bytes / data_->element_size);
    partial_.resize(block * data_->element_size);
    for (std::size_t done = 0; done < step.count(); done += block) {
      const std::size_t count = std::min(block, step.count() - done);
      const std::size_t offset = done * data_->element_size;
      std::byte* to = write_at(step.to) + offset;
      const std::byte* sum = shared_at(step.from, 0) + offset;
      for (int rank = 1; rank < world_; ++rank) {
        std::byte* next = rank == world_ - 1 ? to : partial_.data();
        data_->reduce(next, sum, shared_at(step.from, rank) + offset, count);
        sum = next;
      }
      if (step.completes && data_->scale != nullptr) data_->scale(to, count, data_->factor);
      if (!for_all) continue;
      for (int rank = 0; rank < world_; ++rank) {
        copy_bytes(shared_at(step.to, rank) + offset, to, count * data_->element_size);
      }
    }
  }

  bool send_some(lane& state) {
    bool progressed = false;
    for (;;) {
      const std::int32_t index = current(state.traffic->sends, state.next_send);
      if (index == no_action) return progressed;
      const std::size_t size = total(index);
      const std::size_t permitted = movable(index) - done_at(index);
      if (size == 0 ? !ready(index) : permitted == 0) return progressed;
      const const_bytes head{reinterpret_cast<const std::byte*>(header_) + state.header_sent,
                             frame_size - state.header_sent};
      const region& from = action_at(index).from;
      const const_bytes body{.data = read_at(from) + done_at(index),
                             .size = permitted,
                             .to_follow = size - done_at(index) - permitted,
                             .fresh = overwrites_input_ || from.where != place::input,
                             .at_ease = only_sends_};
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
      if (state.header_sent == frame_size && done_at(index) == size) {
        finish(index);
        ++state.next_send;
        progressed = true;
        continue;
      }
      return progressed;  // give the other direction its turn
    }
  }

  bool receive_some(lane& state) {
    bool progressed = false;
    for (;;) {
      const std::int32_t index = current(state.traffic->receives, state.next_receive);
      if (index == no_action) return progressed;
      const bool reducing = action_at(index).kind == action_kind::receive_reduce;
      const mutable_bytes head{reinterpret_cast<std::byte*>(&state.incoming_header) + state.header_received,
                               frame_size - state.header_received};
      const mutable_bytes body{reducing ? state.staging.data() + state.staged
                                        : write_at(action_at(index).to) + done_at(index),
                               receivable(state, index)};
      std::size_t received = 0;
      if (head.size + body.size > 0) {
        received = state.stream->try_receive(head, body);
        count(bytes_received_, received);
        progressed |= received > 0;
        const std::size_t of_header = std::min(received, head.size);
        if (of_header > 0) {
          state.header_received += of_header;
          if (state.header_received == frame_size) check_header(state);
        }
        const std::size_t of_body = received - of_header;
        if (reducing) {
          state.staged += of_body;
        } else {
          advance(index, of_body);
        }
      }
      if (reducing) progressed |= reduce_staged(state, index);
      if (state.header_received == frame_size && done_at(index) == total(index) &&
          (total(index) > 0 || ready(index))) {
        finish(index);
        ++state.next_receive;
        progressed = true;
        if (received == head.size + body.size) continue;
      }
      return progressed;
    }
  }

  /// Reduces the whole elements that are staged and may be reduced. Waiting for a full segment would
  /// hold up the ranks behind this one whenever the link is slow.
  bool reduce_staged(lane& state, std::int32_t index) {
    const std::size_t permitted = std::min(state.staged, movable(index) - done_at(index));
    const std::size_t count = permitted / data_->element_size;
    const std::size_t whole = count * data_->element_size;
    if (whole == 0) return false;
    const action& step = action_at(index);
    const std::size_t offset = done_at(index);
    std::byte* to = write_at(step.to) + offset;
    const std::byte* mine = read_at(step.from) + offset;
    const std::byte* theirs = state.staging.data();
    if (step.received_first) std::swap(mine, theirs);
    data_->reduce(to, mine, theirs, count);
    if (step.completes && data_->scale != nullptr) data_->scale(to, count, data_->factor);
    state.staged -= whole;
    if (state.staged > 0) {
      std::memmove(state.staging.data(), state.staging.data() + whole, state.staged);
    }
    advance(index, whole);
    return true;
  }

  void check_header(const lane& state) {
    if (data_->counts_differ) count_in_header(state.traffic->receives);
    if (state.incoming_header.matches(*header_)) return;
    throw header_mismatch{state.traffic->peer, *header_, state.incoming_header};
  }

  /// Where only the two ends of a link know what goes over it, its header says how much that is.
  void count_in_header(const std::vector<std::int32_t>& actions) noexcept {
    header_->count = 0;
    for (const std::int32_t index : actions) header_->count += action_at(index).count();
  }

  void pack() {
    std::size_t block = 0;
    for (const const_bytes& each : data_->pack.inputs) block += each.size;
    enlarge(packed_, block * data_->pack.blocks);
    std::byte* to = packed_.data() + block * data_->pack.input_block;
    data_->input = to;
    for (const const_bytes& each : data_->pack.inputs) {
      copy_bytes(to, each.data, each.size);
      to += each.size;
    }
    if (data_->pack.outputs.empty()) return;
    data_->output = packed_.data();
  }
  void unpack() {
    const std::byte* from = packed_.data();
    for (std::size_t i = 0; i < data_->pack.blocks; ++i) {
      for (const mutable_bytes& each : data_->pack.outputs) {
        const std::size_t size = each.size / data_->pack.blocks;
        copy_bytes(each.data + i * size, from, size);
        from += size;
      }
    }
  }

  const plan* plan_ = nullptr;
  collective_data* data_ = nullptr;
  call_header* header_ = nullptr;
  std::vector<progress> progress_;  ///< by action
  std::size_t remaining_ = 0;
  std::vector<std::byte> scratch_;
  std::byte* scratch_at_ = nullptr;  ///< there, or in staging memory
  std::vector<std::byte> packed_;
  std::vector<lane> lanes_;
  std::size_t lane_count_ = 0;
  int world_ = 1;
  bool overwrites_input_ = false;
  bool only_sends_ = false;
  std::vector<std::byte> partial_;
  std::atomic<std::size_t> bytes_received_{0};
  std::atomic<std::size_t> bytes_sent_{0};
};

}  // namespace parx::detail
