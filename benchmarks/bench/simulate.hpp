// simulate: predicts the time of each algorithm on a cluster of any size, in one process.
//
// The schedules are parx's own; the network is a model (virtual_cluster.hpp).
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bench/measure.hpp>
#include <bench/options.hpp>
#include <bench/virtual_cluster.hpp>
#include <parx/comm/schedule/catalog.hpp>

namespace bench {

namespace detail {

[[nodiscard]] inline parx::operation schedule_of(operation op) {
  return static_cast<parx::operation>(
      std::find(parx::operation_names.begin(), parx::operation_names.end(), name_of(op)) -
      parx::operation_names.begin());
}

inline void check_simulation(const options& given) {
  const auto& names = given.algorithms;
  parx::require(given.root >= 0 && given.root < given.simulated_ranks,
                "-r {}: there is no such rank in a world of {}", given.root, given.simulated_ranks);
  for (const operation op : given.operations) {
    std::string known;
    for (const parx::catalog_entry& each : parx::catalog()) {
      if (each.what == schedule_of(op)) known += fmt::format(" {}", name_of(each.name));
    }
    if (given.operations.size() > 1) continue;  // --op all skips what cannot be simulated
    parx::require(!known.empty(), "--op {}: it has no schedules to simulate", name_of(op));
    for (const std::string& name : names) {
      parx::require(
          names == options{}.algorithms || (known + " ").find(" " + name + " ") != known.npos,
          "--algo {}: the algorithms of {} are{}", name, name_of(op), known);
    }
  }
}

}  // namespace detail

/// Prints a line for each size and algorithm; "-" where a schedule is too large to simulate.
inline void run_simulation(const options& given) {
  detail::check_simulation(given);
  const int ranks = given.simulated_ranks;
  link_model model{.latency = given.link_latency, .bandwidth = given.link_bandwidth,
                         .host_bandwidth = given.link_bandwidth};
  for (int rank = 0; rank < ranks; ++rank) {
    model.host_of.push_back(
        static_cast<int>(static_cast<long>(rank) * given.simulated_hosts / ranks));
  }
  fmt::print(
      "# Simulated: {} ranks on {} hosts; between hosts {:.3g} us and {:.3g} GB/s, which the ranks "
      "of a host share\n",
      ranks, given.simulated_hosts, model.latency * 1e6, model.bandwidth * 1e-9);
  fmt::print("# {:<14} {:>12}  {:<15} {:>14} {:>10} {:>12}\n", "operation", "size (B)", "algorithm",
             "time (us)", "messages", "took (s)");
  fmt::print(
      "# -: ranks that differ are simulated one by one, and this schedule has too many actions for "
      "that\n");
  const bool all = given.algorithms == options{}.algorithms;
  for (const operation op : given.operations) {
    const parx::operation what = detail::schedule_of(op);
    // Finding out takes as long as a simulation, and depends only on algorithm and divisibility.
    std::set<std::pair<parx::algorithm, bool>> too_large;
    for (const std::size_t size : sizes_of(given)) {
      // Sizes are counted as in nccl-tests.
      const std::size_t bytes = parx::size_of(given.type);
      const parx::call_shape shape{.what = what,
                                   .world = ranks,
                                   .count = std::max<std::size_t>(1, size / bytes),
                                   .root = given.root,
                                   .element_bytes = bytes,
                                   .host_of = model.host_of};
      for (const parx::catalog_entry& entry : parx::catalog()) {
        const bool wanted = all || std::find(given.algorithms.begin(), given.algorithms.end(),
                                             name_of(entry.name)) != given.algorithms.end();
        if (!wanted || !parx::can_do(entry, shape)) continue;
        const detail::stopwatch watch;
        std::string time = "-";
        std::string messages = "-";
        const std::pair kind(entry.name, shape.count % static_cast<std::size_t>(ranks) == 0);
        try {
          if (too_large.contains(kind)) parx::throw_usage("as before");
          const auto found = simulate(shape, entry.name, model);
          time = fmt::format("{:.1f}", found.seconds * 1e6);
          messages = fmt::format("{}", found.messages);
        } catch (const parx::usage_error&) {
          too_large.insert(kind);  // the table shows "-"
        }
        fmt::print("  {:<14} {:>12} {:<15} {:>14} {:>10} {:>12.2f}\n", name_of(op), size,
                   fmt::format(" {}", name_of(entry.name)), time, messages, watch.seconds());
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace bench
