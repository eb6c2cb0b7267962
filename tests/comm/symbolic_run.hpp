// symbolic_run: runs the schedules of all ranks by the rules of action.hpp, moving random pieces in
// random order, on elements that show what has been done to them.
//
// An element is a symbol that shows all that has been done to it:
//   sum     the sum of its contributions, 64 random bits each: equal only if each is in it once
//   tree    a hash of how they were combined, in which a op b = b op a, but nothing else is equal
//   affine  an affine map mod 2^32 a contribution: equal only if the order of the ranks was kept
//   exact   a hash of how they were combined, in which nothing is equal: neither commuted nor
//           grouped in another way
//   scaled  how often an action that `completes` has multiplied it
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/comm/schedule/catalog.hpp>
#include <parx/comm/schedule/execution_plan.hpp>

namespace proof {

using parx::action;
using parx::action_kind;
using parx::algorithm;
using parx::call_shape;
using parx::operation;
using parx::partition;
using parx::place;
using parx::region;

struct symbol {
  std::uint64_t sum = 0;
  std::uint64_t tree = 0;
  std::uint64_t affine = 0;
  std::uint64_t exact = 0;
  std::uint32_t scaled = 0;
  friend bool operator==(const symbol&, const symbol&) = default;
};

inline std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Element `index` of rank `rank`'s input.
inline symbol leaf(int rank, std::size_t index) {
  const std::uint64_t bits = mix(static_cast<std::uint64_t>(rank) << 32 | index);
  return {bits, mix(bits), mix(bits + 1) | 1, mix(bits + 2), 0};
}
/// The content of memory that was never written.
inline constexpr symbol unwritten{1, 2, 3, 4, 5};

inline symbol combine(const symbol& x, const symbol& y) {
  const auto factor = [](const symbol& s) { return static_cast<std::uint32_t>(s.affine); };
  const auto offset = [](const symbol& s) { return static_cast<std::uint32_t>(s.affine >> 32); };
  const std::uint32_t a = factor(x) * factor(y);
  const std::uint32_t b = factor(x) * offset(y) + offset(x);
  return {x.sum + y.sum, mix(mix(std::min(x.tree, y.tree)) + std::max(x.tree, y.tree)),
          static_cast<std::uint64_t>(b) << 32 | a, mix(mix(x.exact) + 3 * y.exact), 0};
}

enum class memory { apart, in_place };

struct wire {
  bool header = false;  ///< a direction's first message brings the call's header, however short
  std::size_t taken = 0;
  std::vector<symbol> elements;
};

struct lane_state {
  const parx::lane_plan* traffic = nullptr;
  wire* out = nullptr;
  wire* in = nullptr;
  std::size_t next_send = 0;
  std::size_t next_receive = 0;
};

struct rank_state {
  parx::execution_plan plan;
  std::vector<symbol> buffer, scratch;
  std::size_t input_at = 0, input_size = 0;
  std::size_t output_at = 0, output_size = 0;
  std::vector<std::size_t> done;
  std::vector<char> complete;
  std::vector<lane_state> lanes;
  std::size_t remaining = 0;
  std::size_t sent = 0;  ///< elements
  std::size_t signs = 0;  ///< meetings that it has come to
  bool signed_ = false;   ///< and the latest has not ended

  symbol* at(const region& where) {
    switch (where.where) {
      case place::input: return buffer.data() + input_at + where.offset;
      case place::output: return buffer.data() + output_at + where.offset;
      case place::scratch: break;
    }
    return scratch.data() + where.offset;
  }
  [[nodiscard]] std::size_t size_of(place where) const {
    return where == place::input    ? input_size
           : where == place::output ? output_size
                                    : scratch.size();
  }
  [[nodiscard]] const symbol* output() const { return buffer.data() + output_at; }
  [[nodiscard]] const action& step(std::int32_t index) const {
    return plan.steps.actions[static_cast<std::size_t>(index)];
  }
};

class simulation {
 public:
  /// Rank r of the world is given shapes[r].
  simulation(const std::vector<call_shape>& shapes, algorithm use, memory where, unsigned seed)
      : random_(seed) {
    const std::size_t world = shapes.size();
    wires_.resize(world * world);
    ranks_.resize(world);
    for (std::size_t r = 0; r < world; ++r) prepare(ranks_[r], shapes[r], use, where);
  }

  /// "" when every action of every rank ended and nothing was left over.
  std::string run() {
    for (std::size_t r = 0; r < ranks_.size() && problem_.empty(); ++r) check_regions(r);
    for (int idle = 0; idle < 2 && problem_.empty();) {
      bool progressed = false;
      for (std::size_t i = 0; i < ranks_.size(); ++i) {
        progressed |= move(ranks_[random_() % ranks_.size()], static_cast<unsigned>(random_()));
      }
      if (!progressed) {
        for (rank_state& each : ranks_) progressed |= move(each, ~0u);
      }
      idle = progressed ? 0 : idle + 1;
    }
    if (!problem_.empty()) return problem_;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].remaining > 0) {
        return fmt::format("deadlock: rank {} has {} actions left", r, ranks_[r].remaining);
      }
    }
    for (const wire& each : wires_) {
      if (each.taken != each.elements.size()) return "elements were sent that nobody received";
    }
    return {};
  }

  /// Rank `rank` never takes part.
  void silence(std::size_t rank) {
    ranks_[rank].plan = {};
    ranks_[rank].lanes.clear();
    ranks_[rank].remaining = 0;
  }

  std::vector<rank_state>& ranks() { return ranks_; }
  [[nodiscard]] std::size_t sent() const {
    std::size_t total = 0;
    for (const rank_state& each : ranks_) total += each.sent;
    return total;
  }

 private:
  void prepare(rank_state& state, const call_shape& shape, algorithm use, memory where) {
    const partition cut = shape.cut();
    state.input_size = state.output_size = shape.count;
    std::size_t own = 0;  // where a block of one buffer lies in the other, in place
    switch (shape.what) {
      case operation::all_gather:
      case operation::gather:
        state.input_size = cut.count(shape.rank);
        own = cut.offset(shape.rank);
        break;
      case operation::reduce_scatter:
      case operation::scatter:
        state.output_size = cut.count(shape.rank);
        own = cut.offset(shape.rank);
        break;
      case operation::all_to_all: state.output_size = shape.arriving().total(); break;
      default: break;
    }
    // Only the root has both buffers of a gather or scatter.
    const bool rooted = shape.what == operation::gather || shape.what == operation::scatter;
    if (rooted && shape.rank != shape.root) where = memory::apart;
    if (where == memory::apart) {
      state.output_at = state.input_size;
      state.buffer.resize(state.input_size + state.output_size, unwritten);
    } else {
      (state.input_size < state.output_size ? state.input_at : state.output_at) = own;
      state.buffer.resize(std::max(state.input_size, state.output_size), unwritten);
    }
    for (std::size_t k = 0; k < state.input_size; ++k) {
      state.buffer[state.input_at + k] = leaf(shape.rank, k);
    }
    state.plan = parx::make_plan(parx::make_schedule(shape, use));
    state.scratch.assign(state.plan.steps.scratch_count, unwritten);
    state.remaining = state.plan.steps.actions.size();
    if (state.remaining == 0) problem_ = "a schedule without actions never ends";
    state.done.assign(state.remaining, 0);
    state.complete.assign(state.remaining, 0);
    const std::size_t world = static_cast<std::size_t>(shape.world);
    for (const parx::lane_plan& each : state.plan.lanes) {
      const auto peer = static_cast<std::size_t>(each.peer);
      const auto rank = static_cast<std::size_t>(shape.rank);
      state.lanes.push_back({&each, &wires_[rank * world + peer], &wires_[peer * world + rank]});
      if (peer >= world || peer == rank) problem_ = fmt::format("rank {} talks to {}", rank, peer);
    }
  }

  void check_regions(std::size_t rank) {
    const rank_state& state = ranks_[rank];
    for (const action& each : state.plan.steps.actions) {
      const bool reads = each.kind != action_kind::receive;
      const bool writes = each.kind != action_kind::send;
      const auto inside = [&](const region& r) {
        return r.offset + r.count <= state.size_of(r.where);
      };
      if (each.count() == 0) continue;
      if (writes && each.to.where == place::input) problem_ = "an action writes to the input";
      if (!inside(each.own)) problem_ = fmt::format("rank {}: a part that is not there", rank);
      if ((reads && !inside(each.from)) || (writes && !inside(each.to))) {
        problem_ = fmt::format("rank {}: an action reaches over the end of a buffer", rank);
      }
      if (reads && writes && each.from.count != each.to.count) {
        problem_ = "from and to differ in size";
      }
      for (const auto dependency : each.after) {
        if (dependency != parx::no_action && !moves_the_same(state.step(dependency), each)) {
          problem_ = fmt::format("rank {}: two actions of one length, about other elements", rank);
        }
      }
    }
  }

  /// Local actions run as a whole once all their dependencies are complete.
  static bool is_local(const action& step) {
    return step.kind != action_kind::send && step.kind != action_kind::receive &&
           step.kind != action_kind::receive_reduce;
  }
  /// Checks the prefix rule for a dependency of equal length.
  static bool moves_the_same(const action& before, const action& step) {
    if (before.count() != step.count() || is_local(step) || is_local(before)) return true;
    const auto touched = [](const action& each) {
      std::vector<region> regions;
      if (each.kind != action_kind::receive) regions.push_back(each.from);
      if (each.kind != action_kind::send) regions.push_back(each.to);
      return regions;
    };
    for (const region& a : touched(before)) {
      for (const region& b : touched(step)) {
        // Input and output may be one buffer.
        const bool one_buffer = (a.where == place::scratch) == (b.where == place::scratch);
        if (one_buffer && a.offset == b.offset) return true;
      }
    }
    return false;
  }

  static std::size_t movable(const rank_state& state, const action& step) {
    std::size_t limit = step.count();
    for (const auto dependency : step.after) {
      if (dependency == parx::no_action) continue;
      const auto i = static_cast<std::size_t>(dependency);
      if (state.complete[i] != 0) continue;
      if (state.step(dependency).count() != step.count()) return 0;
      limit = std::min(limit, state.done[i]);
    }
    return limit;
  }
  static bool ready(const rank_state& state, const action& step) {
    return std::all_of(step.after.begin(), step.after.end(), [&](auto dependency) {
      return dependency == parx::no_action ||
             state.complete[static_cast<std::size_t>(dependency)] != 0;
    });
  }
  static void finish(rank_state& state, std::int32_t index) {
    state.complete[static_cast<std::size_t>(index)] = 1;
    --state.remaining;
  }

  /// `chance`: a bit for each lane that may move now, and how much.
  bool move(rank_state& state, unsigned chance) {
    if (state.remaining == 0) return false;
    bool progressed = false;
    for (const auto index : state.plan.local) {
      const action& step = state.step(index);
      if (state.complete[static_cast<std::size_t>(index)] != 0 || !ready(state, step)) continue;
      if (step.kind == action_kind::barrier) {
        if (!std::exchange(state.signed_, true)) ++state.signs;
        const bool all = std::all_of(ranks_.begin(), ranks_.end(), [&](const rank_state& each) {
          return each.signs >= state.signs;
        });
        if (!all) continue;
        state.signed_ = false;
      } else {
        run_local(state, step);
      }
      state.done[static_cast<std::size_t>(index)] = step.count();
      finish(state, index);
      progressed = true;
    }
    for (lane_state& lane : state.lanes) {
      chance = std::rotr(chance, 3);
      const std::size_t piece = 1 + chance % 61;
      if ((chance & 1) != 0) progressed |= send_some(state, lane, piece);
      if ((chance & 2) != 0) progressed |= receive_some(state, lane, piece);
    }
    return progressed;
  }

  void run_local(rank_state& state, const action& step) {
    const bool combines =
        step.kind == action_kind::combine || step.kind == action_kind::combine_for_all;
    rank_state& source =
        step.kind == action_kind::fetch ? ranks_[static_cast<std::size_t>(step.peer)] : state;
    const auto part_of = [&](rank_state& each, std::size_t k) {
      return &each == &state && step.own.count > 0 ? state.at(step.own)[k] : each.at(step.from)[k];
    };
    for (std::size_t k = 0; k < step.count(); ++k) {
      symbol value = combines ? part_of(ranks_.front(), k) : source.at(step.from)[k];
      for (std::size_t r = 1; combines && r < ranks_.size(); ++r) {
        value = combine(value, part_of(ranks_[r], k));
      }
      value.scaled += step.completes ? 1 : 0;
      state.at(step.to)[k] = value;
      if (step.own.count > 0) state.at(step.from)[k] = value;
      if (step.kind != action_kind::combine_for_all && step.kind != action_kind::spread) continue;
      for (rank_state& each : ranks_) each.at(step.to)[k] = value;
    }
  }

  static bool send_some(rank_state& state, lane_state& lane, std::size_t piece) {
    if (lane.next_send >= lane.traffic->sends.size()) return false;
    const auto index = lane.traffic->sends[lane.next_send];
    const action& step = state.step(index);
    std::size_t& done = state.done[static_cast<std::size_t>(index)];
    const std::size_t end = std::min(movable(state, step), done + piece);
    if (step.count() == 0 ? !ready(state, step) : end == done) return false;
    lane.out->header = true;
    const symbol* from = state.at(step.from);
    lane.out->elements.insert(lane.out->elements.end(), from + done, from + end);
    state.sent += end - done;
    done = end;
    if (done == step.count()) {
      finish(state, index);
      ++lane.next_send;
    }
    return true;
  }

  bool receive_some(rank_state& state, lane_state& lane, std::size_t piece) {
    if (lane.next_receive >= lane.traffic->receives.size() || !lane.in->header) return false;
    const auto index = lane.traffic->receives[lane.next_receive];
    const action& step = state.step(index);
    std::size_t& done = state.done[static_cast<std::size_t>(index)];
    const std::size_t end = std::min({movable(state, step), done + piece,
                                      done + lane.in->elements.size() - lane.in->taken});
    if (step.count() == 0 ? !ready(state, step) : end == done) return false;
    const bool reducing = step.kind == action_kind::receive_reduce;
    const symbol* from = reducing ? state.at(step.from) : nullptr;
    symbol* to = state.at(step.to);
    for (; done < end; ++done) {
      symbol value = lane.in->elements[lane.in->taken++];
      if (reducing) {
        const symbol& mine = from[done];
        if (mine.scaled + value.scaled != 0) problem_ = "a sum was scaled before it was complete";
        value = step.received_first ? combine(value, mine) : combine(mine, value);
        if (step.own.count > 0) value = combine(value, state.at(step.own)[done]);
        value.scaled += step.completes ? 1 : 0;
      }
      to[done] = value;
    }
    if (done == step.count()) {
      finish(state, index);
      ++lane.next_receive;
    }
    return true;
  }

  std::vector<rank_state> ranks_;
  std::vector<wire> wires_;
  std::mt19937 random_;
  std::string problem_;
};

}  // namespace proof
