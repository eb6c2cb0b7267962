// Ranks as threads: what each of them found, by rank.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include <parx/comm/threads.hpp>

/// body(group) on `world` ranks.
template <typename Body>
auto on_ranks(int world, Body body, parx::threads_options options = {}) {
  using result = std::invoke_result_t<Body&, parx::process_group&>;
  // The ranks write at the same time, and bits of a vector<bool> share a word.
  using stored = std::conditional_t<std::is_same_v<result, bool>, char, result>;
  std::vector<stored> results(static_cast<std::size_t>(world));
  parx::run_threads(world, [&](parx::process_group& group) {
    results[static_cast<std::size_t>(group.rank())] = body(group);
  }, options);
  return results;
}
