// child_process: starting one rank (fork, set up its descriptors, exec) and how it ended.
//
// Each rank leads a process group of its own, so that signals also reach the processes that it has
// started, and Ctrl-C at the terminal reaches it once, by parxrun. It is killed when its parent
// ends, even by SIGKILL.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "tools/common/job_report.hpp"
#include <parx/core/env.hpp>

namespace parx::inline PARX_ABI::detail {

[[nodiscard]] std::string to_string(const exit_status& status);

/// Whether `pid`, a child, has ended, and how. It stays a zombie until reap(), so that the number
/// of its process group is not reused.
[[nodiscard]] bool has_ended(pid_t pid, exit_status& status);

/// Whether `pid`, a child, is stopped by a signal.
[[nodiscard]] bool is_stopped(pid_t pid) noexcept;

void reap(pid_t pid);

/// The descriptors 0, 1 and 2 of a new process.
struct standard_streams {
  int in = 0;
  int out = 1;
  int err = 2;
};

/// fork(), with all signals blocked and no signal handlers in the child: Boost.Asio's handler would
/// write into the pipe that both processes share, as if the parent had received the signal.
[[nodiscard]] pid_t fork_without_handlers();

/// Starts `file` as leader of a new process group, with `signal_mask`. Throws program_error when
/// the system cannot execute it, error when it has no room for another process.
[[nodiscard]] pid_t start_child(const std::string& file, const std::vector<std::string>& command,
                                const environment& env, const standard_streams& streams,
                                const sigset_t& signal_mask);

}  // namespace parx::detail
