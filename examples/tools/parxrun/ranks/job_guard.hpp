// job_guard: a small process beside parxrun that ends what is left of a job when parxrun is killed.
//
// The kernel kills the ranks with parxrun (child_process.hpp), but not what stands behind them: the
// program that a wrapper script has started, or a rank's own children. The guard notices the end
// of parxrun by the end of a connection, and kills all processes that are in a rank's process
// group, have a variable of the job in their environment, or descend from such a process. It has a
// session and a name of its own, so that what ends parxrun and its group does not end it.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "tools/common/child_process.hpp"
#include "tools/parxrun/ranks/orphans.hpp"
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/process_table.hpp>

namespace parx::inline PARX_ABI::detail {

/// Whether the environment with which a process was started has this entry, "NAME=VALUE".
[[nodiscard]] bool has_variable(pid_t pid, const std::string& entry);

/// What ps(1) and pkill(1) show of this process. Writes over the arguments that it was started
/// with, as far as there is room.
void rename_this_process(const std::string& name);

class job_guard {
 public:
  /// `variable` is in the environment of the job's processes on this node, "NAME=VALUE". To be
  /// started before the ranks, by a process with one thread. Throws errc::io where the system
  /// has no room for another process.
  explicit job_guard(const std::string& variable) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw_error(errc::io, "cannot make a socket: {}", errno_text(errno));
    }
    to_guard_ = descriptor(ends[0]);
    descriptor from_parxrun(ends[1]);
    pid_ = fork_without_handlers();
    if (pid_ < 0) throw_error(errc::io, "cannot start another process: {}", errno_text(errno));
    if (pid_ == 0) {
      to_guard_.close();  // else the connection would never end
      watch(from_parxrun.get(), variable);
    }
  }
  job_guard(const job_guard&) = delete;
  job_guard& operator=(const job_guard&) = delete;
  /// The job has ended in order: there is nothing more to guard.
  ~job_guard() {
    ::kill(pid_, SIGKILL);
    reap(pid_);
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// `group` is the process group of a rank.
  void add(pid_t group) const noexcept {
    // Without the guard the job runs all the same.
    static_cast<void>(::send(to_guard_.get(), &group, sizeof group, MSG_NOSIGNAL));
  }

 private:
  [[noreturn]] static void watch(int from_parxrun, const std::string& variable) {
    ::setsid();
    rename_this_process("parx_guard");
    // Nothing of parxrun's stays open here: its output, its port, the file with the secret.
    static constexpr int only = 3;
    if (from_parxrun != only) ::dup2(from_parxrun, only);
    const int nothing = ::open("/dev/null", O_RDWR);
    for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, number);
    ::close_range(only + 1, ~0U, 0);

    std::vector<pid_t> groups;
    pid_t group = 0;
    for (;;) {
      const ssize_t got = ::recv(only, &group, sizeof group, MSG_WAITALL);
      if (got == sizeof group) groups.push_back(group);
      else if (got >= 0 || errno != EINTR) break;
    }
    const auto is_of_job = [&](const process_entry& each) {
      return std::find(groups.begin(), groups.end(), each.group) != groups.end() ||
             has_variable(each.pid, variable);
    };
    kill_all([&] { return family_of(process_table(), is_of_job); });
    ::_exit(0);
  }

  descriptor to_guard_;
  pid_t pid_ = 0;
};

}  // namespace parx::detail
