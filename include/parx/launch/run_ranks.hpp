// run_ranks: parxrun: a program as several ranks, on this host, on this node of a job, or by ssh on
// others.
#pragma once

#include <parx/core/check.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/launch/agent.hpp>
#include <parx/launch/agent_options.hpp>
#include <parx/launch/keeper_process.hpp>
#include <parx/launch/node_agent.hpp>

namespace parx::inline PARX_ABI {

/// Runs this node's part of a job to its end and returns parxrun's exit code: 0 when all ranks
/// (with on_loss::go_on: at least one) returned 0; the code of the rank that caused a failure (128
/// + signal when it was killed), the same on all nodes; 75 when the ranks ended with that code, or
/// the first node's parxrun is gone; else 128 + signal when this process was told to stop. Blocks.
/// Catches SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE and SIGTSTP
/// meanwhile, and leaves them unblocked and at their defaults, and adopts orphans from then on, so
/// call it from a process with one thread. Throws usage_error for wrong options, program_error for
/// a program that cannot be started, error when the system refuses files, sockets or processes.
[[nodiscard]] inline int run_ranks(const agent_options& options) {
  require(options.ranks >= 1, "-n {}: a job has at least one rank", options.ranks);
  require(options.ranks <= detail::most_ranks_of_node, "-n {}: more than {} ranks on one host",
          options.ranks, detail::most_ranks_of_node);
  const bool keeps_only = options.nodes && options.nodes->role == keeper_role::only;
  require(!options.command.empty() || (keeps_only && !options.by_ssh),
          "there is no program to run: parxrun -n 4 ./program");
  require(options.grace.count() >= 0, "--grace: the time cannot be negative");
  fill_standard_descriptors();
  if (keeps_only) return detail::keeper_process(options).run();
  return options.nodes ? detail::node_agent(options).run() : detail::agent(options).run();
}

}  // namespace parx
