// The first line of a training program: "4 ranks on 2 hosts".
#pragma once

#include <algorithm>
#include <vector>

#include <parx/launch.hpp>

namespace examples {

/// Local. Rank 0 prints it.
inline void print_ranks(const parx::world& world) {
  const std::vector<int> hosts = world.hosts();
  const int count = 1 + *std::max_element(hosts.begin(), hosts.end());
  parx::print0(world, "{} rank{} on {} host{}\n", world.size(), world.size() == 1 ? "" : "s", count,
               count == 1 ? "" : "s");
}

}  // namespace examples
