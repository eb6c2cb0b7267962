// where: which partition has the nodes for a job now, and why the other nodes do not count. Pure:
// from what sinfo and scontrol print to a table of partitions, the best first.
//
//   auto found = slurm::candidates(nodes, partitions, request);
//   for (auto& each : found) if (each.may_fit(request)) each.start = ask_slurm(each);
//   slurm::rank(found, request, now);
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tools/common/instruction_level.hpp"
#include "tools/parx_slurm/nodes/partition.hpp"
#include "tools/parx_slurm/nodes/sinfo.hpp"
#include "tools/parx_slurm/nodes/test_only.hpp"

namespace parx::inline PARX_ABI::slurm {

/// The nodes that are looked for, and who asks.
struct node_request {
  int nodes = 1;
  int cores = 1;                                          ///< of each node
  std::int64_t memory_mb = 0;                             ///< of each node; 0: what the site gives
  std::chrono::seconds time{0};                           ///< 0: the partition's default
  instruction_level level = instruction_level::baseline;  ///< that the program was compiled for
  bool gpu_nodes = false;                                 ///< nodes with GPUs count as well
  std::string partition;                                  ///< only this one; empty: any
  std::string account;              ///< empty: the user's default, which is not known here
  std::vector<std::string> groups;  ///< of the user
  bool is_root = false;
  std::vector<std::string> exclude = {};  ///< nodes to leave out
};

/// Why a node does not count.
enum class obstacle {
  none,
  busy,
  planned,
  maintenance,
  reserved,
  drained,
  down,
  too_few_cores,
  too_little_memory,
  gpu,
  processor,     ///< its features promise fewer instructions than the program needs
  minority_hardware,  ///< usable, but enough others are alike, and the slowest sets the pace of all
};

[[nodiscard]] std::string to_string(obstacle why);

/// What a partition has for a request.
struct candidate {
  partition rules;
  std::vector<sinfo_node> usable;                       ///< now
  std::size_t nodes = 0;                                ///< in the partition
  std::size_t later = 0;                                ///< nodes that will do when they are free
  std::map<obstacle, std::vector<std::string>> others;  ///< names of the nodes that do not count
  std::string refusal;   ///< why the partition itself does not take the job; empty: it does
  expected_start start;  ///< Slurm's own answer, where it was asked

  [[nodiscard]] bool may_fit(const node_request& request) const noexcept {
    return refusal.empty() && usable.size() + later >= static_cast<std::size_t>(request.nodes);
  }
  /// It has the nodes now, and Slurm, where it was asked, does not refuse.
  [[nodiscard]] bool fits_now(const node_request& request) const noexcept {
    return refusal.empty() && start.refusal.empty() &&
           usable.size() >= static_cast<std::size_t>(request.nodes);
  }
};

namespace detail {

[[nodiscard]] inline bool has(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// Why `rules` do not allow this job: a part of a sentence; empty where they do.
[[nodiscard]] std::string refusal_of(const partition& rules, const node_request& request);

}  // namespace detail

/// A candidate for each partition of `nodes`, in their order. A partition that `partitions` does
/// not have (scontrol may be forbidden) has only the rules that sinfo knows. Throws usage_error
/// where the partition asked for is not there, naming those that are.
[[nodiscard]] std::vector<candidate> candidates(const std::vector<sinfo_node>& nodes,
                                                const std::vector<partition>& partitions,
                                                const node_request& request);

/// Sorts the best first: by the time at which the job starts, then nodes of one kind before mixed
/// ones, then the cheaper, then the one with more usable cores; what does not fit comes last.
/// Starts within a minute of `now` are the same. A start that Slurm was not asked for counts as now
/// where the nodes are there, and as unknown, after all known ones, where they are not.
void rank(std::vector<candidate>& all, const node_request& request,
          std::chrono::system_clock::time_point now);

}  // namespace parx::slurm
