// sinfo: the nodes of a cluster, as sinfo prints them. Pure; who runs sinfo is examples'
// parx_slurm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/parx_slurm/nodes/node_state.hpp"
#include "tools/parx_slurm/nodes/time_limit.hpp"

namespace parx::inline PARX_ABI::slurm {

/// The columns that parse_sinfo() reads: `sinfo -h -N -o FORMAT`. %R and not %P, which marks the
/// default partition by a star; the reason is last, because it may contain anything.
inline constexpr std::string_view sinfo_format = "%R|%N|%C|%Z|%t|%f|%G|%m|%a|%l|%E";

/// A node as a member of one partition: sinfo prints a node once for each of its partitions.
struct sinfo_node {
  std::string partition;  ///< in exact case: Slurm refuses any other
  std::string name;       ///< of the node, which need not be that of the host
  int idle_cpus = 0;      ///< a CPU is a hardware thread where a core has several
  int cpus = 0;
  int threads_per_core = 1;
  node_state state;
  std::vector<std::string> features;
  int gpus = 0;
  std::int64_t memory_mb = 0;     ///< 1 or less where the site does not say
  std::int64_t allocated_mb = 0;  ///< belongs to jobs; 0 where not asked for
  bool partition_is_up = true;
  std::optional<std::chrono::seconds> time_limit;  ///< of the partition; nullopt if not known
  std::string reason;  ///< why its administrator has taken it out; empty: none given

  [[nodiscard]] int cores() const noexcept { return cpus / threads_per_core; }
  [[nodiscard]] int idle_cores() const noexcept { return idle_cpus / threads_per_core; }
  [[nodiscard]] bool memory_is_known() const noexcept { return memory_mb > 1; }
};

/// The output of `sinfo -h -N -o sinfo_format`. Throws usage_error for a line of another shape.
[[nodiscard]] std::vector<sinfo_node> parse_sinfo(std::string_view output);

/// Fills in allocated_mb from `sinfo -h -N -O NodeList:200,AllocMem:20`, which has it, where -o has
/// not. Lines of another shape are ignored: memory then counts as free.
void read_allocated_memory(std::string_view output, std::vector<sinfo_node>& nodes);

}  // namespace parx::slurm
