// run_command: a command's output, its exit code and its end within a time limit.
#pragma once

#include <poll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "tools/common/child_process.hpp"
#include "tools/common/held_signals.hpp"
#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::slurm {

struct command_result {
  int code = 0;            ///< as a shell has it: 128 + signal; 127 where there is no such program
  bool started = true;     ///< else `err` says why not
  bool timed_out = false;  ///< it was killed at the limit
  bool stopped = false;    ///< it was ended because a held signal waits
  std::string out;
  std::string err;

  [[nodiscard]] bool success() const noexcept { return code == 0 && !timed_out && !stopped; }
};

using parx::detail::pipe_ends;

namespace detail {

/// A program of PATH and its arguments, with this process's environment.
[[nodiscard]] inline pid_t start_command(const std::vector<std::string>& words,
                                         const parx::detail::child_options& options) {
  const environment env = process_environment();
  return parx::detail::start_child(parx::detail::find_program(words.front(), env), words, env,
                                   options);
}

}  // namespace detail

/// Runs `words` (a program of PATH and its arguments, without a shell), gives it `input` to read,
/// and reads all that it writes. What it has started is killed with it at `limit`. When one of
/// `signals` waits, the command gets SIGTERM, and SIGKILL five seconds later. Throws error where
/// the system has no room for a process.
[[nodiscard]] inline command_result run_command(const std::vector<std::string>& words,
                                                std::chrono::milliseconds limit,
                                                std::string_view input = {},
                                                const held_signals* signals = nullptr) {
  require(!words.empty(), "there is no command to run");
  pipe_ends out = parx::detail::make_pipe(), err = parx::detail::make_pipe();
  // In memory, and not through a pipe, so that nobody waits for a command that does not read it.
  const descriptor in(::memfd_create("input", MFD_CLOEXEC));
  if (!in.valid() ||
      ::pwrite(in.get(), input.data(), input.size(), 0) != static_cast<ssize_t>(input.size())) {
    throw_error(errc::io, "memfd_create: {}", errno_text(errno));
  }
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  command_result result;
  pid_t pid = 0;
  try {
    pid = detail::start_command(words, {.signal_mask = detail::mask_of_child(mask),
                                        .in = in.get(),
                                        .out = out.writer.get(),
                                        .err = err.writer.get()});
  } catch (const program_error& failure) {
    result.started = false;
    result.code = failure.exit_code();
    result.err = failure.what();
    return result;
  }
  out.writer.close();
  err.writer.close();

  auto end = deadline::after(limit);
  pollfd polled[3] = {{out.reader.get(), POLLIN, 0},
                      {err.reader.get(), POLLIN, 0},
                      {signals == nullptr ? -1 : signals->waiting(), POLLIN, 0}};
  std::string* const texts[2] = {&result.out, &result.err};
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    const int ready = ::poll(polled, 3, end.poll_timeout());
    if (ready < 0 && errno == EINTR) continue;
    if (ready > 0 && polled[2].revents != 0) {
      result.stopped = true;
      ::kill(-pid, SIGTERM);
      polled[2] = {-1, 0, 0};
      end = deadline::after(std::chrono::seconds(5));
    }
    if (ready <= 0) {
      result.timed_out = true;
      ::kill(-pid, SIGKILL);
      break;
    }
    for (int i = 0; i < 2; ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      char bytes[65536];
      const ssize_t got = ::read(polled[i].fd, bytes, sizeof bytes);
      if (got > 0) texts[i]->append(bytes, static_cast<std::size_t>(got));
      else if (got == 0 || errno != EINTR) polled[i].fd = -1;
    }
  }
  result.code = parx::detail::reap(pid).shell_code();
  return result;
}

/// Who gets the signals that are sent to this process while a command runs.
enum class passed_on {
  to_command,
  /// To what the command has started, once there is something. For salloc, which gives the
  /// allocation back at once when it gets one itself.
  to_its_child
};

namespace detail {

/// A process that `parent` has started; `parent` where there is none.
[[nodiscard]] inline pid_t child_of(pid_t parent) {
  std::error_code failure;
  const std::filesystem::path tasks = parx::formatted("/proc/{}/task", parent);
  for (const auto& task : std::filesystem::directory_iterator(tasks, failure)) {
    std::ifstream children(task.path() / "children");
    if (pid_t child = 0; children >> child) return child;
  }
  return parent;
}

}  // namespace detail

/// Runs `words` with this process's own input, output and terminal, and returns the exit code as a
/// shell has it; 127 or 126, with a sentence on standard error, where it cannot be started. What
/// the terminal sends (Ctrl-C) reaches the command by itself; SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2
/// of somebody else are passed on, and SIGINT as SIGTERM: srun takes one SIGINT for a question, and
/// salloc does not listen to it. `watch`, where there is one, gets what the command writes to
/// standard error, which is then passed on through a pipe. Call it from a process with one thread.
[[nodiscard]] inline int run_in_foreground(
    const std::vector<std::string>& words, passed_on receiver = passed_on::to_command,
    const std::function<void(std::string_view)>& watch = nullptr) {
  require(!words.empty(), "there is no command to run");
  pipe_ends errors;
  if (watch) errors = parx::detail::make_pipe();
  sigset_t caught, before;
  ::sigemptyset(&caught);
  for (const int each : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE}) {
    ::sigaddset(&caught, each);
  }
  ::sigprocmask(SIG_BLOCK, &caught, &before);
  const descriptor signals(::signalfd(-1, &caught, SFD_CLOEXEC));
  // A signal to all processes of this group, as timeout sends one, would reach salloc as well. At a
  // terminal it must stay where it may read.
  const bool apart = receiver == passed_on::to_its_child && ::tcgetpgrp(0) != ::getpgrp();
  pid_t pid = 0;
  int code = 0;
  try {
    pid = detail::start_command(words, {.signal_mask = detail::mask_of_child(before),
                                        .err = watch ? errors.writer.get() : STDERR_FILENO,
                                        .leads_group = apart});
  } catch (const program_error& failure) {
    fmt::print(stderr, "{}\n", failure.what());
    code = failure.exit_code();
  }
  errors.writer.close();
  const auto pass_on = [&] {
    char bytes[65536];
    const ssize_t got = ::read(errors.reader.get(), bytes, sizeof bytes);
    if (got <= 0) return got < 0 && errno == EINTR;
    watch({bytes, static_cast<std::size_t>(got)});
    return std::fwrite(bytes, 1, static_cast<std::size_t>(got), stderr) > 0;
  };
  pollfd polled[2] = {{errors.reader.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
  while (pid > 0) {
    if (::poll(polled, 2, -1) < 0) continue;
    if (polled[0].revents != 0 && !pass_on()) polled[0].fd = -1;
    signalfd_siginfo info{};
    if (polled[1].revents == 0 || ::read(signals.get(), &info, sizeof info) != sizeof info) {
      continue;
    }
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGCHLD) {
      const bool from_terminal = info.ssi_code == SI_KERNEL;
      if (from_terminal || signal == SIGPIPE) continue;  // fwrite() says so, too
      ::kill(receiver == passed_on::to_its_child ? detail::child_of(pid) : pid,
             signal == SIGINT ? SIGTERM : signal);
      continue;
    }
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) != pid) continue;
    if (!WIFEXITED(status) && !WIFSIGNALED(status)) continue;
    code = parx::detail::status_of(status).shell_code();
    break;
  }
  // What it has written by now; processes that it has left may keep the pipe open.
  while (polled[0].fd >= 0 && ::poll(polled, 1, 0) > 0 && pass_on()) {
  }
  sigset_t broken_pipe;
  ::sigemptyset(&broken_pipe);
  ::sigaddset(&broken_pipe, SIGPIPE);
  const timespec no_time{};
  ::sigtimedwait(&broken_pipe, nullptr, &no_time);  // else it would end this process now
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return code;
}

}  // namespace parx::slurm
