// agent_options: what run_ranks(), and so parxrun, is told.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/parxrun/nodes/job_nodes.hpp"
#include "tools/parxrun/ssh/ssh_hosts.hpp"
#include <parx/core/env.hpp>

namespace parx::inline PARX_ABI {

enum class output_tags {
  rank,  ///< "[rank 3] " before each line
  none,
};

/// Which of a rank's two streams.
struct output_streams {
  bool out = false;
  bool err = false;
};

/// The hosts on which run_ranks() starts parxrun by ssh.
struct ssh_start {
  std::vector<ssh_host> hosts;
  std::string ssh = "ssh";                 ///< and options of it, separated by spaces
  std::vector<std::string> exported = {};  ///< variables that they get beside PARX_* and OMP_*
  std::vector<std::string> arguments;      ///< their command line: parxrun's own
};

struct agent_options {
  int ranks = 1;
  /// With which each rank computes (PARX_THREADS, OMP_NUM_THREADS). 0: those of their environment,
  /// else this process's cores divided by the ranks.
  int threads = 0;
  std::vector<std::string> command = {};  ///< the program and its arguments
  /// The folder for each rank's output, rank_R.out and rank_R.err. Empty: parxrun's own output.
  std::string log_dir = {};
  output_streams to_files = {true, true};   ///< those that go to that folder
  output_streams tee = {};                  ///< those of them that are shown here as well
  std::vector<int> shown_ranks = {};        ///< only these have lines here; empty: all
  std::vector<int> shown_local_ranks = {};  ///< the same, by their numbers on their node
  output_tags tags = output_tags::rank;
  /// How long the ranks may take to end after parxrun was told to stop; the default is that of
  /// Slurm's KillWait.
  std::chrono::milliseconds grace{30'000};
  environment variables = {};    ///< added to the ranks' environment
  std::string role = "default";  ///< ROLE_NAME of the ranks
  job_nodes nodes = {};          ///< of the job; `ranks` are those of this one
  /// With `nodes`, whose role is coordinator_role::only.
  std::optional<ssh_start> by_ssh = {};
  /// The descriptor of the starter's words, in a parxrun that another one has started by ssh.
  std::optional<int> starter = {};
};

}  // namespace parx
