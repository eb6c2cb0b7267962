// run: measures a backend in the mode that the options name.
#pragma once

#include <cstddef>
#include <string>

#include <bench/backend.hpp>
#include <bench/latency.hpp>
#include <bench/options.hpp>
#include <bench/overlap.hpp>
#include <bench/rate.hpp>
#include <bench/table.hpp>
#include <bench/wire.hpp>

namespace bench {

/// Collective. Runs everything; rank 0 prints. Returns the number of wrong elements, the same on
/// all ranks. Throws parx::usage_error if the library or the world does not support the options,
/// and whatever the backend throws.
[[nodiscard]] inline std::size_t run_all(backend& ranks, const options& given,
                                         const std::string& program) {
  parx::require(given.root >= 0 && given.root < ranks.size(),
                "-r {}: there is no such rank in a world of {}", given.root, ranks.size());
  parx::require(given.plot_file.empty() || given.measured == mode::table,
                "--plot {}: only --mode table has a plot", given.plot_file);
  parx::require(given.json_file.empty() || given.measured == mode::table,
                "--json {}: for other modes than table use --format json", given.json_file);
  ranks.require_support(given.type, given.reduction);
  for (const std::string& each : given.algorithms) ranks.use(each);
  switch (given.measured) {
    case mode::table: return run_table(ranks, given, program);
    case mode::latency: run_latency(ranks, given); return 0;
    case mode::overlap: run_overlap(ranks, given); return 0;
    case mode::rate: run_rate(ranks, given); return 0;
    case mode::wire: run_wire(ranks, given); return 0;
    case mode::startup:
    case mode::bootstrap: break;
  }
  parx::throw_usage("--mode {}: only parx-bench has it",
                    mode_names[static_cast<std::size_t>(given.measured)]);
}

}  // namespace bench
