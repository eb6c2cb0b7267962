// child_process: starting a process (fork, set up its descriptors, exec) and how it ended: a rank
// of parxrun, its ssh, and the commands that parx_slurm and parx_doctor run.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "tools/common/exit_status.hpp"
#include "tools/common/find_program.hpp"
#include "tools/common/interpreter.hpp"
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

/// What waitpid() has said of a process that has ended.
[[nodiscard]] inline exit_status status_of(int waited) {
  return WIFEXITED(waited) ? exit_status{WEXITSTATUS(waited), 0} : exit_status{0, WTERMSIG(waited)};
}

/// Whether `pid`, a child, has ended, and how. It stays a zombie until reap(), so that the number
/// of its process group is not reused.
[[nodiscard]] inline bool has_ended(pid_t pid, exit_status& status) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return false;
  }
  status =
      info.si_code == CLD_EXITED ? exit_status{info.si_status, 0} : exit_status{0, info.si_status};
  return true;
}

/// Whether `pid`, a child, is stopped by a signal.
[[nodiscard]] inline bool is_stopped(pid_t pid) noexcept {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

/// Waits for the end of `pid`, a child.
inline exit_status reap(pid_t pid) {
  int waited = 0;
  while (::waitpid(pid, &waited, 0) < 0 && errno == EINTR) {
  }
  return status_of(waited);
}

/// fork(), with all signals blocked and no signal handlers in the child: Boost.Asio's handler would
/// write into the pipe that both processes share, as if the parent had received the signal.
[[nodiscard]] inline pid_t fork_without_handlers() {
  sigset_t all;
  ::sigfillset(&all);
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid != 0) {
    const int why = errno;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = why;
    return pid;
  }
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    // An ignored signal (SIGHUP under nohup) stays ignored.
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    ::sigaction(signal, &action, nullptr);
  }
  return 0;
}

/// The two ends of a pipe or terminal.
struct pipe_ends {
  descriptor reader;
  descriptor writer;
};

[[nodiscard]] inline pipe_ends make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw_error(errc::io, "cannot make a pipe: {}", errno_text(errno));
  return {descriptor(ends[0]), descriptor(ends[1])};
}

struct child_options {
  sigset_t signal_mask;  ///< with which it begins
  int in = 0;            ///< its descriptors 0, 1 and 2
  int out = 1;
  int err = 2;
  /// It leads a process group of its own, so that a signal to that reaches what it has started, and
  /// Ctrl-C at the terminal does not.
  bool leads_group = true;
  bool dies_with_parent = false;  ///< killed when this process ends, even by SIGKILL
};

/// Starts `file`. Throws program_error when the system cannot execute it, error when it has no room
/// for another process.
[[nodiscard]] inline pid_t start_child(const std::string& file,
                                       const std::vector<std::string>& command,
                                       const environment& env, const child_options& options) {
  std::vector<std::string> settings;
  for (const auto& [name, value] : env) settings.push_back(name + "=" + value);
  const auto pointers = [](const std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
    result.push_back(nullptr);
    return result;
  };
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(settings);
  // For a script that does not name its interpreter.
  std::vector<std::string> shell_command{"sh", file};
  shell_command.insert(shell_command.end(), command.begin() + 1, command.end());
  const std::vector<char*> shell_argv = pointers(shell_command);

  pipe_ends failure = make_pipe();  // carries the errno of a failed exec
  const pid_t parent = ::getpid();
  const pid_t pid = fork_without_handlers();
  if (pid < 0) throw_error(errc::io, "cannot start another process: {}", errno_text(errno));
  if (pid == 0) {
    // Between fork and exec only async-signal-safe functions.
    if (options.dies_with_parent) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (options.dies_with_parent && ::getppid() != parent) ::_exit(127);
    if (options.leads_group) ::setpgid(0, 0);
    // Copies first, as a source may itself be 0, 1 or 2.
    const int copies[3] = {::fcntl(options.in, F_DUPFD_CLOEXEC, 3),
                           ::fcntl(options.out, F_DUPFD_CLOEXEC, 3),
                           ::fcntl(options.err, F_DUPFD_CLOEXEC, 3)};
    for (int target = 0; target < 3; ++target) ::dup2(copies[target], target);
    ::sigprocmask(SIG_SETMASK, &options.signal_mask, nullptr);
    ::execve(file.c_str(), argv.data(), envp.data());
    if (errno == ENOEXEC) ::execve("/bin/sh", shell_argv.data(), envp.data());
    const int why = errno;
    [[maybe_unused]] const auto written = ::write(failure.writer.get(), &why, sizeof why);
    ::_exit(127);
  }
  // Here as well, so that the group exists whichever of the two processes runs first.
  if (options.leads_group) ::setpgid(pid, pid);
  failure.writer.close();
  int why = 0;
  ssize_t got = 0;
  while ((got = ::read(failure.reader.get(), &why, sizeof why)) < 0 && errno == EINTR) {
  }
  if (got == sizeof why) {
    reap(pid);
    throw program_error(126,
                        formatted("cannot execute \"{}\": {}", file, why_not_executed(file, why)));
  }
  return pid;
}

}  // namespace parx::detail
