#include "tools/parxrun/ranks/child_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tools/common/find_program.hpp"
#include "tools/parxrun/ranks/interpreter.hpp"
#include "tools/parxrun/ranks/output_channel.hpp"
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/signal_name.hpp>

namespace parx::inline PARX_ABI::detail {

std::string to_string(const exit_status& status) {
  if (status.signal != 0) {
    return formatted("killed by {} (signal {})", signal_name(status.signal), status.signal);
  }
  return formatted("exit code {}", status.code);
}

bool has_ended(pid_t pid, exit_status& status) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return false;
  }
  status =
      info.si_code == CLD_EXITED ? exit_status{info.si_status, 0} : exit_status{0, info.si_status};
  return true;
}

bool is_stopped(pid_t pid) noexcept {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

void reap(pid_t pid) {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

pid_t fork_without_handlers() {
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

pid_t start_child(const std::string& file, const std::vector<std::string>& command,
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

}  // namespace parx::detail
