// --parallel: the layout of a training program, as text.
#pragma once

#include <string>

#include "common/options.hpp"
#include <parx/plan/layout.hpp>

namespace examples {

inline void add_parallel_flag(cxxopts::Options& options) {
  options.add_options("Ranks")(
      "parallel",
      "how the model lies on the ranks: what is sharded, nothing (ddp), optimizer state (zero=1), "
      "also gradients (zero=2), also values (fsdp), the same inside each host (hybrid); pp=N: N "
      "stages, with schedule=, chunks=; tp=N: layers cut over N ranks, with sp sequence parallel; "
      "dp=N: N ranks with other samples; microbatches=N of a step; replicas=N: samples, dropout "
      "and sums go by N virtual replicas, so that bits do not depend on the number of ranks",
      text("ddp"));
}

/// Throws parx::usage_error that says what is wrong and what is allowed.
[[nodiscard]] inline parx::layout parallel_flag(const cxxopts::ParseResult& given) {
  return parx::layout::parse(given["parallel"].as<std::string>());
}

}  // namespace examples
