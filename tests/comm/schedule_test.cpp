#include <parx/comm/schedule/barrier.hpp>
#include <parx/comm/schedule/chain.hpp>
#include <parx/comm/schedule/direct.hpp>
#include <parx/comm/schedule/doubling.hpp>
#include <parx/comm/schedule/plan.hpp>
#include <parx/comm/schedule/ring.hpp>
#include <parx/comm/schedule/catalog.hpp>
#include <parx/comm/schedule/tree.hpp>

#include <boost/test/unit_test.hpp>

#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using parx::action;
using parx::action_kind;
using parx::place;
using parx::plan;
using parx::schedule;

// An element is the set of ranks that have contributed to it; to add the same rank twice is an error.
using contribution = std::uint64_t;
constexpr contribution nothing = 0;

struct rank_state {
  plan steps;
  std::vector<contribution> input, output, scratch;
  std::vector<std::size_t> done;
  std::vector<std::size_t> next_send, next_receive;  // per lane
  std::size_t sent = 0;

  std::vector<contribution>& at(place where) {
    return where == place::input ? input : where == place::output ? output : scratch;
  }
};

// Runs all ranks' schedules by the rules of action.hpp, moving random pieces in random order, and
// returns what went wrong ("" when nothing did).
class simulation {
 public:
  simulation(std::vector<rank_state> ranks, unsigned seed) : ranks_(std::move(ranks)), random_(seed) {}

  std::string run() {
    // One element moves at a time within a random piece; whoever could move but is not chosen waits, so
    // every order of delivery is possible.
    for (int idle = 0; idle < 2;) {
      bool progressed = false;
      for (std::size_t i = 0; i < ranks_.size(); ++i) {
        progressed |= move(static_cast<std::size_t>(random_() % ranks_.size()));
      }
      if (!progressed) {
        for (std::size_t i = 0; i < ranks_.size(); ++i) progressed |= move(i);
      }
      idle = progressed ? 0 : idle + 1;
      if (!problem_.empty()) return problem_;
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t i = 0; i < ranks_[r].steps.steps.actions.size(); ++i) {
        if (!complete(ranks_[r], static_cast<std::int32_t>(i))) {
          return "deadlock: rank " + std::to_string(r) + " action " + std::to_string(i);
        }
      }
    }
    for (const auto& [ends, wire] : wires_) {
      if (!wire.empty()) return "bytes were sent that nobody received";
    }
    return {};
  }

  std::vector<rank_state>& ranks() { return ranks_; }

 private:
  static bool complete(const rank_state& state, std::int32_t index) {
    const auto i = static_cast<std::size_t>(index);
    return state.done[i] > state.steps.steps.actions[i].count();  // count + 1 once it has ended
  }
  static std::size_t movable(const rank_state& state, const action& step) {
    std::size_t limit = step.count();
    for (const auto dependency : step.after) {
      if (dependency == parx::no_action || complete(state, dependency)) continue;
      const auto& before = state.steps.steps.actions[static_cast<std::size_t>(dependency)];
      if (before.count() != step.count()) return 0;
      limit = std::min(limit, state.done[static_cast<std::size_t>(dependency)]);
    }
    return limit;
  }
  static bool ready(const rank_state& state, const action& step) {
    for (const auto dependency : step.after) {
      if (dependency != parx::no_action && !complete(state, dependency)) return false;
    }
    return true;
  }

  bool move(std::size_t r) {
    rank_state& state = ranks_[r];
    bool progressed = false;
    for (const auto index : state.steps.local) {
      if (complete(state, index)) continue;
      const action& step = state.steps.steps.actions[static_cast<std::size_t>(index)];
      if (!ready(state, step)) continue;
      for (std::size_t k = 0; k < step.count(); ++k) {
        state.at(step.to.where)[step.to.offset + k] = state.at(step.from.where)[step.from.offset + k];
      }
      state.done[static_cast<std::size_t>(index)] = step.count() + 1;
      progressed = true;
    }
    for (std::size_t lane = 0; lane < state.steps.lanes.size(); ++lane) {
      const auto& traffic = state.steps.lanes[lane];
      auto& outgoing = wires_[{static_cast<int>(r), traffic.peer}];
      auto& incoming = wires_[{traffic.peer, static_cast<int>(r)}];
      progressed |= move_one(state, traffic.sends, state.next_send[lane], outgoing, true);
      progressed |= move_one(state, traffic.receives, state.next_receive[lane], incoming, false);
    }
    return progressed;
  }

  bool move_one(rank_state& state, const std::vector<std::int32_t>& list, std::size_t& next,
                std::deque<contribution>& wire, bool sending) {
    if (next >= list.size()) return false;
    const auto index = static_cast<std::size_t>(list[next]);
    const action& step = state.steps.steps.actions[index];
    std::size_t piece = 1 + random_() % 7;
    bool progressed = false;
    while (piece-- > 0 && state.done[index] < movable(state, step)) {
      const std::size_t k = state.done[index];
      if (sending) {
        wire.push_back(state.at(step.from.where)[step.from.offset + k]);
        ++state.sent;
      } else {
        if (wire.empty()) break;
        contribution value = wire.front();
        wire.pop_front();
        if (step.kind == action_kind::receive_reduce) {
          const contribution mine = state.at(step.from.where)[step.from.offset + k];
          if ((mine & value) != 0) problem_ = "a rank contributed twice";
          value |= mine;
        }
        state.at(step.to.where)[step.to.offset + k] = value;
      }
      ++state.done[index];
      progressed = true;
    }
    // An empty message is a header: it needs its dependencies, and its own marker on the wire.
    const bool empty = step.count() == 0;
    if (state.done[index] == step.count() && (!empty || ready(state, step))) {
      if (empty && sending) wire.push_back(~contribution{0});
      if (empty && !sending) {
        if (wire.empty()) return progressed;
        wire.pop_front();
      }
      state.done[index] = step.count() + 1;
      ++next;
      progressed = true;
    }
    return progressed;
  }

  std::vector<rank_state> ranks_;
  std::map<std::pair<int, int>, std::deque<contribution>> wires_;
  std::mt19937 random_;
  std::string problem_;
};

using make_schedule = std::function<schedule(int rank)>;

// in_place: output and input are one array, as far as the operation defines that.
simulation simulate(int world, std::size_t in, std::size_t out, const make_schedule& make, unsigned seed) {
  std::vector<rank_state> ranks;
  for (int r = 0; r < world; ++r) {
    rank_state state;
    state.steps = parx::make_plan(make(r));
    state.input.assign(in, contribution{1} << r);
    state.output.assign(out, nothing);
    state.scratch.assign(state.steps.steps.scratch_count, nothing);
    state.done.assign(state.steps.steps.actions.size(), 0);
    state.next_send.assign(state.steps.lanes.size(), 0);
    state.next_receive.assign(state.steps.lanes.size(), 0);
    ranks.push_back(std::move(state));
  }
  return {std::move(ranks), seed};
}

contribution everybody(int world) {
  return world == 64 ? ~contribution{0} : (contribution{1} << world) - 1;
}

std::vector<std::size_t> awkward_counts(int world) {
  const auto w = static_cast<std::size_t>(world);
  if (world > 16) return {w - 1, 2 * w + 3};
  return {0, 1, 2, 7, w - 1, w, 3 * w + 1, 61};
}

const std::vector<int>& worlds() {
  static const std::vector<int> all = [] {
    std::vector<int> list;
    for (int w = 2; w <= 64; ++w) list.push_back(w);
    return list;
  }();
  return all;
}

bool all_equal(const std::vector<contribution>& values, contribution wanted) {
  return std::all_of(values.begin(), values.end(), [&](auto v) { return v == wanted; });
}

}  // namespace

BOOST_AUTO_TEST_CASE(ring_all_reduce_sums_every_rank_once_and_sends_the_least_bytes) {
  for (const int w : worlds()) {
    for (const std::size_t n : awkward_counts(w)) {
      auto sim = simulate(w, n, n, [&](int r) { return parx::schedules::ring_all_reduce(r, w, n); },
                          static_cast<unsigned>(w) + static_cast<unsigned>(n));
      BOOST_REQUIRE_EQUAL(sim.run(), "");
      std::size_t sent = 0;
      for (const auto& each : sim.ranks()) {
        BOOST_REQUIRE(all_equal(each.output, everybody(w)));
        BOOST_REQUIRE_EQUAL(each.scratch.size(), 0u);
        sent += each.sent;
      }
      // 2 n (P-1)/P a rank, 2 n (P-1) in all.
      BOOST_REQUIRE_EQUAL(sent, 2 * n * static_cast<std::size_t>(w - 1));
    }
  }
}

BOOST_AUTO_TEST_CASE(doubling_all_reduce_sums_every_rank_once_for_any_world) {
  for (const int w : worlds()) {
    for (const std::size_t n : awkward_counts(w)) {
      auto sim = simulate(w, n, n, [&](int r) { return parx::schedules::doubling_all_reduce(r, w, n); },
                          static_cast<unsigned>(w) * 31);
      BOOST_REQUIRE_EQUAL(sim.run(), "");
      const auto power = static_cast<std::size_t>(std::bit_floor(static_cast<unsigned>(w)));
      const std::size_t extra = static_cast<std::size_t>(w) - power;
      std::size_t sent = 0;
      for (const auto& each : sim.ranks()) {
        BOOST_REQUIRE(all_equal(each.output, everybody(w)));
        sent += each.sent;
      }
      BOOST_REQUIRE_EQUAL(sent, n * (power * static_cast<std::size_t>(std::countr_zero(power)) + 2 * extra));
    }
  }
}

BOOST_AUTO_TEST_CASE(reduce_scatter_leaves_each_rank_its_complete_chunk) {
  for (const int w : worlds()) {
    for (const std::size_t n : awkward_counts(w)) {
      for (const bool ring : {true, false}) {
        const auto make = [&](int r) {
          return ring ? parx::schedules::ring_reduce_scatter(r, parx::partition::even(n, w))
                      : parx::schedules::direct_reduce_scatter(r, parx::partition::even(n, w));
        };
        auto sim = simulate(w, n, parx::chunk_begin(n, w, 1) + 1, make, static_cast<unsigned>(w));
        BOOST_REQUIRE_EQUAL(sim.run(), "");
        std::size_t sent = 0;
        for (int r = 0; r < w; ++r) {
          auto& each = sim.ranks()[static_cast<std::size_t>(r)];
          sent += each.sent;
          each.output.resize(parx::chunk(place::output, n, w, r).count);
          BOOST_REQUIRE(all_equal(each.output, everybody(w)));
          BOOST_REQUIRE_LE(each.scratch.size(), 2 * parx::chunk_begin(n, w, 1));
        }
        BOOST_REQUIRE_EQUAL(sent, n * static_cast<std::size_t>(w - 1));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(all_gather_brings_every_chunk_to_every_rank) {
  for (const int w : worlds()) {
    for (const std::size_t n : awkward_counts(w)) {
      for (const bool ring : {true, false}) {
        const auto make = [&](int r) {
          return ring ? parx::schedules::ring_all_gather(r, parx::partition::even(n, w))
                      : parx::schedules::direct_all_gather(r, parx::partition::even(n, w));
        };
        auto sim = simulate(w, parx::chunk_begin(n, w, 1) + 1, n, make, static_cast<unsigned>(n));
        BOOST_REQUIRE_EQUAL(sim.run(), "");
        for (auto& each : sim.ranks()) {
          for (int r = 0; r < w; ++r) {
            const auto piece = parx::chunk(place::output, n, w, r);
            for (std::size_t k = 0; k < piece.count; ++k) {
              BOOST_REQUIRE_EQUAL(each.output[piece.offset + k], contribution{1} << r);
            }
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(broadcast_and_reduce_work_from_every_root) {
  for (const int w : {2, 3, 4, 5, 7, 8, 13, 16, 33, 64}) {
    for (int root = 0; root < w; root += (w > 8 ? 5 : 1)) {
      for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{19}}) {
        for (const bool tree : {true, false}) {
          auto cast = simulate(w, n, n, [&](int r) {
            return tree ? parx::schedules::tree_broadcast(r, w, n, root)
                        : parx::schedules::chain_broadcast(r, w, n, root);
          }, static_cast<unsigned>(root));
          BOOST_REQUIRE_EQUAL(cast.run(), "");
          std::size_t sent = 0;
          for (const auto& each : cast.ranks()) {
            BOOST_REQUIRE(all_equal(each.output, contribution{1} << root));
            sent += each.sent;
          }
          BOOST_REQUIRE_EQUAL(sent, n * static_cast<std::size_t>(w - 1));

          auto sum = simulate(w, n, n, [&](int r) {
            return tree ? parx::schedules::tree_reduce(r, w, n, root)
                        : parx::schedules::chain_reduce(r, w, n, root);
          }, static_cast<unsigned>(root) + 9);
          BOOST_REQUIRE_EQUAL(sum.run(), "");
          BOOST_REQUIRE(all_equal(sum.ranks()[static_cast<std::size_t>(root)].output, everybody(w)));
          for (int r = 0; r < w; ++r) {
            if (r == root) continue;
            BOOST_REQUIRE(all_equal(sum.ranks()[static_cast<std::size_t>(r)].output, nothing));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(nobody_leaves_a_barrier_before_everybody_entered) {
  for (const int w : worlds()) {
    for (int late = 0; late < w; late += (w > 9 ? 7 : 1)) {
      // The late rank never enters: then no other rank may complete all its actions.
      auto sim = simulate(w, 0, 0, [&](int r) {
        auto plan = parx::schedules::dissemination_barrier(r, w);
        if (r == late) plan.actions.clear();
        return plan;
      }, static_cast<unsigned>(late));
      BOOST_REQUIRE(sim.run().starts_with("deadlock"));
      for (int r = 0; r < w; ++r) {
        if (r == late) continue;
        const auto& each = sim.ranks()[static_cast<std::size_t>(r)];
        const bool left = std::all_of(each.done.begin(), each.done.end(), [](auto d) { return d == 1; });
        BOOST_REQUIRE(!left);
      }
    }
    auto sim = simulate(w, 0, 0, [&](int r) { return parx::schedules::dissemination_barrier(r, w); }, 1);
    BOOST_REQUIRE_EQUAL(sim.run(), "");
  }
}

BOOST_AUTO_TEST_CASE(reductions_are_complete_exactly_where_their_result_is_scaled) {
  // The average's factor is applied by the action that is marked: once for each element of the result.
  for (const int w : {2, 3, 4, 5, 8, 13}) {
    const std::size_t n = 29;
    for (int r = 0; r < w; ++r) {
      const auto marked = [](const schedule& plan) {
        std::size_t count = 0;
        for (const auto& each : plan.actions) count += each.completes ? each.count() : 0;
        return count;
      };
      BOOST_TEST(marked(parx::schedules::ring_all_reduce(r, w, n)) == parx::chunk(place::output, n, w, r).count);
      BOOST_TEST(marked(parx::schedules::ring_reduce_scatter(r, parx::partition::even(n, w))) == parx::chunk(place::output, n, w, r).count);
      BOOST_TEST(marked(parx::schedules::direct_reduce_scatter(r, parx::partition::even(n, w))) == parx::chunk(place::output, n, w, r).count);
      BOOST_TEST(marked(parx::schedules::tree_reduce(r, w, n, 0)) == (r == 0 ? n : 0));
      BOOST_TEST(marked(parx::schedules::chain_reduce(r, w, n, 0)) == (r == 0 ? n : 0));
    }
  }
}

BOOST_AUTO_TEST_CASE(chunks_cover_the_vector_without_gap_and_differ_by_one_at_most) {
  for (const int w : {1, 2, 3, 7, 64}) {
    for (const std::size_t n : {0u, 1u, 6u, 64u, 1000u}) {
      BOOST_TEST(parx::chunk_begin(n, w, 0) == 0u);
      BOOST_TEST(parx::chunk_begin(n, w, w) == n);
      for (int i = 0; i < w; ++i) {
        const auto piece = parx::chunk(place::input, n, w, i);
        BOOST_TEST(piece.count - n / static_cast<std::size_t>(w) <= 1u);
        BOOST_TEST(piece.offset + piece.count == parx::chunk_begin(n, w, i + 1));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(small_vectors_take_few_steps_and_large_ones_few_bytes) {
  using parx::algorithm;
  using parx::operation;
  const auto chosen = [](operation what, int world, std::size_t bytes) {
    return parx::choose({.what = what, .world = world, .count = bytes});
  };
  constexpr std::size_t large = std::size_t{64} << 20;
  for (const int w : {2, 4, 8, 100}) {
    BOOST_TEST((chosen(operation::all_reduce, w, 4) == algorithm::doubling));
    BOOST_TEST((chosen(operation::all_reduce, w, large) == algorithm::ring));
  }
  BOOST_TEST((chosen(operation::broadcast, 8, 4) == algorithm::tree));
  BOOST_TEST((chosen(operation::broadcast, 8, large) == algorithm::chain));
  BOOST_TEST((chosen(operation::all_gather, 8, 64) == algorithm::direct));
  BOOST_TEST((chosen(operation::reduce_scatter, 8, large) == algorithm::ring));
}
