// child_process: starting one rank (find the program, fork, set up its descriptors, exec) and how
// it ended.
//
// Each rank leads a process group of its own, so that signals also reach the processes that it has
// started, and Ctrl-C at the terminal reaches it once, by parxrun. It is killed when its parent
// ends, even by SIGKILL.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>
#include <vector>

#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/signal_name.hpp>
#include <parx/core/stopped.hpp>
#include <parx/launch/detail/interpreter.hpp>
#include <parx/launch/detail/output_channel.hpp>

namespace parx::inline PARX_ABI {

/// The program of a job cannot be started. exit_code() follows the shell: 127 where there is no
/// such program, 126 where it cannot be executed.
class program_error : public usage_error {
 public:
  program_error(int exit_code, const std::string& text)
      : usage_error(text), exit_code_(exit_code) {}
  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

namespace detail {

/// The file that a shell would run for `program`. Throws program_error where it would not.
[[nodiscard]] inline std::string find_program(const std::string& program, const environment& env) {
  std::vector<std::string> candidates{program};
  if (program.find('/') == std::string::npos) {
    candidates.clear();
    const std::string path = env_string(env, "PATH").value_or("/usr/local/bin:/usr/bin:/bin");
    for (std::size_t begin = 0; begin <= path.size();) {
      const auto end = std::min(path.find(':', begin), path.size());
      const std::string folder = path.substr(begin, end - begin);
      candidates.push_back((folder.empty() ? "." : folder) + "/" + program);
      begin = end + 1;
    }
  }
  bool found = false;
  for (const std::string& file : candidates) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) continue;
    found = true;
    if (S_ISREG(status.st_mode) && ::access(file.c_str(), X_OK) == 0) return file;
  }
  if (!found && program.find('/') == std::string::npos) {
    const bool here = ::access(program.c_str(), F_OK) == 0;
    throw program_error(
        127,
        formatted("program \"{}\" was not found in PATH{}", program,
                    here ? "; to run the one in this folder, write ./" + program : std::string()));
  }
  if (!found) {
    throw program_error(127, formatted("program \"{}\" was not found: {}", program,
                                       std::generic_category().message(errno)));
  }
  throw program_error(
      126,
      formatted("\"{}\" is not an executable file; chmod +x it if it is a program", program));
}

/// How a process ended.
struct exit_status {
  int code = 0;    ///< what it returned, where signal is 0
  int signal = 0;  ///< what killed it

  [[nodiscard]] bool success() const noexcept { return code == 0 && signal == 0; }
  /// It was stopped, has saved its work, and can be started again.
  [[nodiscard]] bool has_saved() const noexcept {
    return code == stopped_exit_code && signal == 0;
  }
  /// Both in one number, as the shell reports them.
  [[nodiscard]] int shell_code() const noexcept { return signal != 0 ? 128 + signal : code; }
};

[[nodiscard]] inline std::string to_string(const exit_status& status) {
  if (status.signal != 0) {
    return formatted("killed by {} (signal {})", signal_name(status.signal), status.signal);
  }
  return formatted("exit code {}", status.code);
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

inline void reap(pid_t pid) {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

/// The descriptors 0, 1 and 2 of a new process.
struct standard_streams {
  int in = 0;
  int out = 1;
  int err = 2;
};

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

/// Starts `file` as leader of a new process group, with `signal_mask`. Throws program_error when
/// the system cannot execute it, error when it has no room for another process.
[[nodiscard]] inline pid_t start_child(const std::string& file,
                                       const std::vector<std::string>& command,
                                       const environment& env, const standard_streams& streams,
                                       const sigset_t& signal_mask) {
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

  output_channel failure = make_pipe();  // carries the errno of a failed exec
  const pid_t parent = ::getpid();
  const pid_t pid = fork_without_handlers();
  if (pid < 0) throw_error(errc::io, "cannot start another process: {}", errno_text(errno));
  if (pid == 0) {
    // Between fork and exec only async-signal-safe functions.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::setpgid(0, 0);
    // Copies first, as a source may itself be 0, 1 or 2.
    const int copies[3] = {::fcntl(streams.in, F_DUPFD_CLOEXEC, 3),
                           ::fcntl(streams.out, F_DUPFD_CLOEXEC, 3),
                           ::fcntl(streams.err, F_DUPFD_CLOEXEC, 3)};
    for (int target = 0; target < 3; ++target) ::dup2(copies[target], target);
    ::sigprocmask(SIG_SETMASK, &signal_mask, nullptr);
    ::execve(file.c_str(), argv.data(), envp.data());
    if (errno == ENOEXEC) ::execve("/bin/sh", shell_argv.data(), envp.data());
    const int why = errno;
    [[maybe_unused]] const auto written = ::write(failure.writer.get(), &why, sizeof why);
    ::_exit(127);
  }
  // Here as well, so that the group exists whichever of the two processes runs first.
  ::setpgid(pid, pid);
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

}  // namespace detail
}  // namespace parx
