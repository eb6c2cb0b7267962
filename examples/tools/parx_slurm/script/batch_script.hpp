// batch_script: a script for sbatch that goes on where the last turn of its job has stopped. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/common/container.hpp"
#include "tools/parx_slurm/nodes/incompatible_nodes.hpp"

namespace parx::inline PARX_ABI::slurm {

struct batch_options {
  std::string name;        ///< of the job and its log
  std::string partition;   ///< empty: the site's default
  std::string account;     ///< empty: the user's default
  std::string constraint;  ///< features of nodes: "avx2|zen3"; empty: any
  std::string exclude;     ///< a host list; empty: none
  incompatible_nodes older = {};  ///< are kept out as well
  std::string array;       ///< "0-4": a job for each; empty: one job
  int nodes = 1;
  int least_nodes = 0;  ///< the job goes on with so many where it loses some; 0: with all alone
  int ranks = 1;        ///< of a node
  int threads = 1;      ///< of a rank
  std::int64_t memory_mb = 0;         ///< of a node; 0: what the site gives
  std::chrono::seconds time{0};       ///< of one turn; 0: the partition's default
  std::chrono::seconds warning{120};  ///< before the end of a turn: SIGUSR1, to save
  std::string checkpoints;  ///< the folder of "checkpoint-STEP"; empty: progress is not watched
  container box = {};       ///< around the ranks
  std::string parxrun = "parxrun";  ///< its path on the nodes, where least_nodes asks for one there
  std::vector<std::string> command;     ///< the program and its arguments
  std::vector<std::string> written_by;  ///< the command line that made the script
};

/// At most 60 lines. A turn that ends with 75 has saved its work, and the job is requeued; three
/// turns in a row without a new checkpoint end it with 1. Any other code ends the job.
[[nodiscard]] std::string batch_script(const batch_options& job);

}  // namespace parx::slurm
