// run_ranks: parxrun: a program as several ranks, on this host, on this node of a job, or by ssh on
// others.
#pragma once

#include "tools/parxrun/agent_options.hpp"

namespace parx::inline PARX_ABI {

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

/// The two kinds of parxrun, a class each: one with ranks, and one that only keeps the job.
[[nodiscard]] int run_agent(const agent_options& options);
[[nodiscard]] int run_coordinator_process(const agent_options& options);

}  // namespace detail

}  // namespace parx
