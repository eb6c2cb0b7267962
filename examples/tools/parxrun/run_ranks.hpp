// run_ranks: parxrun: a program as several ranks, on this host, on this node of a job, or by ssh on
// others.
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

/// What run_ranks(), and so parxrun, is told.
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

/// Runs this node's part of a job to its end and returns parxrun's exit code: 0 when all ranks
/// (with on_loss::go_on: at least one) returned 0; the code of the rank that caused a failure (128
/// + signal when it was killed), the same on all nodes; 75 when the ranks ended with that code, or
/// the first node's parxrun is gone; else 128 + signal when this process was told to stop. Blocks.
/// Catches SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE and SIGTSTP
/// meanwhile, and leaves them unblocked and at their defaults, and adopts orphans from then on, so
/// call it from a process with one thread. Throws usage_error for wrong options, program_error for
/// a program that cannot be started, error when the system refuses files, sockets or processes.
[[nodiscard]] int run_ranks(const agent_options& options);

namespace detail {

/// A parxrun without ranks, that only keeps the job.
[[nodiscard]] int run_coordinator_process(const agent_options& options);

}  // namespace detail

}  // namespace parx
