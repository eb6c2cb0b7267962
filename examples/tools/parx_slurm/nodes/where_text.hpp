// where_text: the table of partitions that `parx_slurm where` prints, and its last sentence. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "tools/parx_slurm/nodes/where.hpp"

namespace parx::inline PARX_ABI::slurm {

/// A line a partition, in the order of rank(); the best has a star.
[[nodiscard]] std::string where_table(const std::vector<candidate>& ranked,
                                      const node_request& request,
                                      std::chrono::system_clock::time_point now);

namespace detail {

inline constexpr std::size_t most_lines_on_nodes = 8;

}  // namespace detail

/// What to type, or the nearest miss where no partition has such nodes: {true, "best: salloc ..."}.
struct where_verdict {
  bool found = false;
  std::string text;
};

[[nodiscard]] where_verdict verdict(const std::vector<candidate>& ranked,
                                    const std::vector<sinfo_node>& nodes,
                                    const node_request& request);

}  // namespace parx::slurm
