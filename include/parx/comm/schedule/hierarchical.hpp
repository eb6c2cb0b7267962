// Hierarchical algorithms: inside each host, then between the hosts' leaders, then inside again, so
// that a vector crosses the network once per host instead of once per rank.
//
// host_of[rank] is the number of the rank's host; ranks of one host need not be neighbours. A
// host's leader is its first rank (in a broadcast, the root for its own host).
// all_reduce: a tree to the leader, Rabenseifner's algorithm between the leaders, a tree back. The
//   bits are the same on all ranks, but depend on the placement of the ranks, whose order is not
//   kept.
// all_gather: blocks go to the leader, around a ring of leaders, and down a chain of the host's
//   ranks; each block is forwarded as it arrives.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include <parx/comm/schedule/compose.hpp>
#include <parx/comm/schedule/halving.hpp>
#include <parx/comm/schedule/partition.hpp>
#include <parx/comm/schedule/tree.hpp>

namespace parx::inline PARX_ABI::algorithms {

/// The ranks of each host, from the view of one rank.
struct ranks_by_host {
  std::vector<std::vector<int>> hosts;  ///< their ranks; hosts in the order of their first rank
  int host = 0;                         ///< this rank's, an index of `hosts`
  int position = 0;                     ///< this rank's, an index of hosts[host]

  ranks_by_host(int rank, std::span<const int> host_of) {
    std::vector<int> numbers;
    for (std::size_t r = 0; r < host_of.size(); ++r) {
      const auto found = std::find(numbers.begin(), numbers.end(), host_of[r]);
      const auto index = static_cast<std::size_t>(found - numbers.begin());
      if (found == numbers.end()) {
        numbers.push_back(host_of[r]);
        hosts.emplace_back();
      }
      if (static_cast<int>(r) == rank) {
        host = static_cast<int>(index);
        position = static_cast<int>(hosts[index].size());
      }
      hosts[index].push_back(static_cast<int>(r));
    }
  }

  /// Makes `leader` the first rank of its host.
  void lead(int rank, int leader) {
    for (auto& each : hosts) {
      const auto found = std::find(each.begin(), each.end(), leader);
      if (found == each.end()) continue;
      std::move_backward(each.begin(), found, found + 1);
      each.front() = leader;
    }
    const auto& mine = local();
    position = static_cast<int>(std::find(mine.begin(), mine.end(), rank) - mine.begin());
  }

  [[nodiscard]] const std::vector<int>& local() const {
    return hosts[static_cast<std::size_t>(host)];
  }
  [[nodiscard]] std::vector<int> leaders() const {
    std::vector<int> first;
    for (const auto& each : hosts) first.push_back(each.front());
    return first;
  }
  [[nodiscard]] bool leads() const noexcept { return position == 0; }
};

/// Input and output hold `count` elements.
[[nodiscard]] inline schedule hierarchical_all_reduce(int rank, std::span<const int> host_of,
                                                      std::size_t count) {
  schedule steps{.name = algorithm::hierarchical};
  const ranks_by_host by_host(rank, host_of);
  const auto& local = by_host.local();
  const int neighbours = static_cast<int>(local.size());
  const int hosts = static_cast<int>(by_host.hosts.size());
  std::int32_t done = no_action;
  place current = place::input;
  if (neighbours > 1) {
    schedule part = tree_reduce(by_host.position, neighbours, count, 0);
    if (hosts > 1) {
      for (action& each : part.actions) each.completes = false;
    }
    done = append(steps, part, place::input, done, local);
    current = place::output;
  }
  if (by_host.leads() && hosts > 1) {
    done = append(steps, halving_all_reduce(by_host.host, hosts, count), current, done,
                  by_host.leaders());
  }
  if (neighbours > 1) {
    append(steps, tree_broadcast(by_host.position, neighbours, count, 0), place::output, done,
           local);
  }
  return steps;
}

/// The root's input is copied to every rank's output (`count` elements each).
[[nodiscard]] inline schedule hierarchical_broadcast(int rank, std::span<const int> host_of,
                                                     std::size_t count, int root) {
  schedule steps{.name = algorithm::hierarchical};
  ranks_by_host by_host(rank, host_of);
  by_host.lead(rank, root);
  const auto& local = by_host.local();
  const std::vector<int> leaders = by_host.leaders();
  const int hosts = static_cast<int>(leaders.size());
  const auto from =
      static_cast<int>(std::find(leaders.begin(), leaders.end(), root) - leaders.begin());
  std::int32_t arrived = no_action;
  if (by_host.leads() && hosts > 1) {
    append(steps, tree_broadcast(by_host.host, hosts, count, from), place::input, no_action,
           leaders);
    // A leader's action 0 is its receive; it forwards the vector to its host while it arrives.
    if (rank != root) arrived = 0;
  }
  if (local.size() > 1) {
    append(steps, tree_broadcast(by_host.position, static_cast<int>(local.size()), count, 0),
           rank == root ? place::input : place::output, arrived, local);
  }
  return steps;
}

/// Input holds block `rank`; output receives all of them.
[[nodiscard]] inline schedule hierarchical_all_gather(int rank, std::span<const int> host_of,
                                                      const partition& blocks) {
  schedule steps{.name = algorithm::hierarchical};
  const ranks_by_host by_host(rank, host_of);
  const auto& local = by_host.local();
  const int hosts = static_cast<int>(by_host.hosts.size());
  const auto block = [&](int r) { return blocks.block(place::output, r); };
  const auto members = [&](int host) -> const std::vector<int>& {
    return by_host.hosts[static_cast<std::size_t>(wrap(host, hosts))];
  };
  std::vector<std::int32_t> here(host_of.size(), no_action);
  const auto arrived = [&](int r) -> std::int32_t& { return here[static_cast<std::size_t>(r)]; };

  arrived(rank) = steps.copy(blocks.alone(place::input, rank), block(rank));
  if (by_host.leads()) {
    for (const int r : local) {
      if (r != rank) arrived(r) = steps.receive(r, block(r));
    }
  } else {
    steps.send(local.front(), blocks.alone(place::input, rank));
  }

  const auto position = static_cast<std::size_t>(by_host.position);
  const int next = position + 1 < local.size() ? local[position + 1] : -1;
  for (int step = 0; step < hosts; ++step) {
    for (const int r : members(by_host.host - step)) {
      if (!by_host.leads() && r != rank) arrived(r) = steps.receive(local[position - 1], block(r));
      if (by_host.leads() && step > 0) {
        arrived(r) = steps.receive(members(by_host.host - 1).front(), block(r));
      }
      if (next >= 0 && r != next) steps.send(next, block(r), arrived(r));
      if (by_host.leads() && step + 1 < hosts) {
        steps.send(members(by_host.host + 1).front(), block(r), arrived(r));
      }
    }
  }
  return steps;
}

}  // namespace parx::algorithms
