// Ranks as threads: what each of them found, by rank.
#pragma once

#include <type_traits>
#include <vector>

#include <parx/comm/threads.hpp>

/// body(group) on `world` ranks.
template <typename Body>
auto on_ranks(int world, Body body, parx::threads_options options = {}) {
  std::vector<std::invoke_result_t<Body&, parx::process_group&>> results(
      static_cast<std::size_t>(world));
  parx::run_threads(world, [&](parx::process_group& group) {
    results[static_cast<std::size_t>(group.rank())] = body(group);
  }, options);
  return results;
}
