// partition: who may use a partition, for how long and at what price. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tools/parx_slurm/nodes/time_limit.hpp"

namespace parx::inline PARX_ABI::slurm {

struct partition {
  std::string name;
  bool is_default = false;
  bool is_up = true;
  bool root_only = false;
  bool needs_reservation = false;  ///< ReqResv
  bool whole_nodes = false;        ///< OverSubscribe=EXCLUSIVE: a job gets all of a node
  std::chrono::seconds max_time = no_time_limit;
  int min_nodes = 0;
  int max_nodes = std::numeric_limits<int>::max();
  int max_cpus_per_node = std::numeric_limits<int>::max();
  std::int64_t max_memory_mb = std::numeric_limits<std::int64_t>::max();  ///< of a node
  std::vector<std::string> allowed_groups;                                ///< empty: all
  std::vector<std::string> allowed_accounts;                              ///< empty: all
  std::vector<std::string> denied_accounts;
  double cpu_price = 1;  ///< the weight of a CPU in the job's billing
};

namespace detail {

[[nodiscard]] std::vector<std::string> names_of(std::string_view list);

}  // namespace detail

/// The output of `scontrol show partition -o`, a partition a line. Fields that a version of Slurm
/// does not print keep their defaults; lines without PartitionName are ignored.
[[nodiscard]] std::vector<partition> parse_partitions(std::string_view output);

}  // namespace parx::slurm
