// departures: runs the engines of all ranks over wires in memory, where a rank leaves as soon as
// its own part is done and others are slow, and reports who takes a rank that has left for lost.
//
// A rank that waits looks for awaited peers that have ended (progress/watchdog.hpp). By the rules
// of every transport, what a rank sent before it left can be received after that: wires keep it and
// end behind it. So after a step in which nothing moved no missing peer may be one that has left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/comm/detail/progress/engine.hpp>
#include <parx/types/reduce.hpp>

#include "comm/proof_cases.hpp"

namespace departures {

/// One direction between two ranks.
struct wire {
  std::deque<std::byte> bytes;
  bool ended = false;
};

struct network {
  std::size_t capacity;  ///< bytes that a wire holds
  std::map<std::pair<int, int>, wire> wires{};
};

class wire_link final : public parx::link {
 public:
  wire_link(network& all, int rank, int peer)
      : capacity_(all.capacity),
        peer_(peer),
        out_(all.wires[{rank, peer}]),
        in_(all.wires[{peer, rank}]) {}

  std::size_t try_send(const parx::const_bytes& first, const parx::const_bytes& second) override {
    if (in_.ended && in_.bytes.empty()) throw parx::closed_by(peer_);
    std::size_t sent = put(first);
    if (sent == first.size) sent += put(second);
    return sent;
  }
  std::size_t try_receive(const parx::mutable_bytes& first,
                          const parx::mutable_bytes& second) override {
    std::size_t got = take(first);
    if (got == first.size) got += take(second);
    if (got == 0 && in_.ended && in_.bytes.empty()) throw parx::closed_by(peer_);
    return got;
  }

 private:
  std::size_t put(const parx::const_bytes& from) {
    const std::size_t size = std::min(from.size, capacity_ - out_.bytes.size());
    out_.bytes.insert(out_.bytes.end(), from.data, from.data + size);
    return size;
  }
  std::size_t take(const parx::mutable_bytes& to) {
    const std::size_t size = std::min(to.size, in_.bytes.size());
    const auto end = in_.bytes.begin() + static_cast<std::ptrdiff_t>(size);
    std::copy(in_.bytes.begin(), end, to.data);
    in_.bytes.erase(in_.bytes.begin(), end);
    return size;
  }

  std::size_t capacity_;
  int peer_;
  wire& out_;
  wire& in_;
};

class wire_links final : public parx::links {
 public:
  wire_links(network& all, int rank, int world)
      : links(nullptr, parx::all_ranks(world), rank, 0), all_(all) {}

  parx::link& link_to(int peer, parx::channel, std::chrono::milliseconds) override {
    return opened_.try_emplace(peer, all_, rank(), peer).first->second;
  }
  void for_each_link(parx::channel, const std::function<void(int, parx::link&)>&) override {}
  void wait(const std::vector<parx::link_interest>&, std::chrono::milliseconds) override {}
  void wake() override {}
  void close() noexcept override {
    for (int peer = 0; peer < size(); ++peer) all_.wires[{rank(), peer}].ended = true;
  }
  bool shares_memory() override { return false; }
  std::vector<int> hosts() override { return {}; }
  parx::shared_area share(std::size_t, std::uint64_t, parx::deadline) override { return {}; }

 private:
  std::unique_ptr<links> make_subgroup(std::vector<int>, int, std::uint64_t) override {
    return nullptr;
  }

  network& all_;
  std::map<int, wire_link> opened_;
};

/// One rank of one collective, whose elements are bytes.
struct one_rank {
  wire_links links;
  parx::execution_plan plan;
  std::vector<std::byte> input, output;
  parx::detail::collective_data data;
  parx::detail::call_header header;
  parx::detail::host_barrier barrier;
  parx::detail::engine engine;

  one_rank(network& all, const parx::call_shape& shape, parx::algorithm use)
      : links(all, shape.rank, shape.world),
        plan(parx::make_plan(parx::make_schedule(shape, use))),
        input(shape.count + shape.arriving().total()),
        output(input.size()) {
    data.input = input.data();
    data.output = output.data();
    data.reduce.kernel = parx::reduce_kernel(parx::dtype::uint8, parx::reduce_op::sum);
    data.counts_differ = shape.incoming.parts() != 0;
    engine.start(plan, data, header, links, barrier, {});
  }
};

/// Whether the algorithm's messages are all there is of it: others end with a meeting of all ranks.
inline bool has_only_messages(const parx::execution_plan& plan) {
  return std::ranges::all_of(plan.local, [&](std::int32_t index) {
    return plan.steps.actions[static_cast<std::size_t>(index)].kind == parx::action_kind::copy;
  });
}

/// "" where every rank ends and nobody takes a rank that has left for lost. Some ranks move only
/// where no other can.
inline std::string run(const std::vector<parx::call_shape>& shapes, parx::algorithm use,
                       unsigned seed) {
  std::mt19937 random(seed);
  network all{.capacity = random() % 2 == 0 ? std::size_t{96} : std::size_t{1} << 20};
  std::vector<std::unique_ptr<one_rank>> ranks;
  for (const auto& each : shapes) ranks.push_back(std::make_unique<one_rank>(all, each, use));
  if (!has_only_messages(ranks.front()->plan)) return {};
  const auto fail = [&](std::size_t rank, const std::string& what) {
    return fmt::format("{} by {} on {} ranks, {} elements, root {}: rank {} {}",
                       name_of(shapes.front().what), name_of(use), shapes.size(),
                       shapes.front().count, shapes.front().root, rank, what);
  };
  std::vector<bool> is_slow(ranks.size());
  for (std::size_t i = 0; i < 1 + ranks.size() / 8; ++i) is_slow[random() % ranks.size()] = true;
  std::vector<std::size_t> order(ranks.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::vector<bool> left(ranks.size());
  for (std::size_t remaining = ranks.size(); remaining > 0;) {
    std::ranges::shuffle(order, random);
    bool moved = false;
    const auto step = [&](std::size_t rank) -> std::string {
      if (left[rank]) return {};
      one_rank& each = *ranks[rank];
      try {
        if (each.engine.step()) moved = true;
        else
          for (const int peer : each.engine.missing_peers()) {
            if (left[static_cast<std::size_t>(peer)]) {
              return fail(rank, fmt::format("misses rank {}, which has left", peer));
            }
          }
      } catch (const parx::link_lost& lost) {
        return fail(rank, fmt::format("has lost rank {}: {}", lost.peer, lost.what()));
      }
      if (!each.engine.done()) return {};
      each.links.close();
      left[rank] = true;
      moved = true;
      --remaining;
      return {};
    };
    for (const bool slow : {false, true}) {
      for (const std::size_t rank : order) {
        if (is_slow[rank] != slow) continue;
        if (auto problem = step(rank); !problem.empty()) return problem;
        if (slow && moved) break;  // the others may go on
      }
      if (moved) break;
    }
    if (!moved) return fail(0, "and the others wait for each other");
  }
  return {};
}

/// Every algorithm on every one of these worlds.
inline std::string run_all(const std::vector<int>& worlds, std::size_t& runs) {
  for (const parx::catalog_entry& entry : parx::catalog()) {
    for (const int world : worlds) {
      std::vector<std::vector<int>> hosts(1);
      for (int r = 0; r < world; ++r) hosts[0].push_back(r / std::max(2, world / 4));
      for (const auto& shapes : proof::cases(entry, world, hosts)) {
        const auto problem = run(shapes, entry.name, static_cast<unsigned>(runs++));
        if (!problem.empty()) return problem;
      }
    }
  }
  return {};
}

}  // namespace departures
