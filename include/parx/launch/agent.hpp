// run_ranks: starts a program as N ranks on this host and looks after them; what parxrun does.
//
// One thread, one poll(). Signals are read as data (signalfd), so that nothing happens in a
// handler. A job ends in one of three ways: all ranks return 0; one fails, and the others have to
// end within a second; parxrun is told to stop, and the ranks have `grace` to do so. No process of
// the ranks' process groups is left behind.
#pragma once

#include <poll.h>
#include <sched.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/detail/random_hex.hpp>
#include <parx/core/env.hpp>
#include <parx/launch/detail/child_process.hpp>
#include <parx/launch/detail/console.hpp>
#include <parx/launch/detail/failure_report.hpp>
#include <parx/launch/detail/output_channel.hpp>
#include <parx/launch/detail/rank_process.hpp>
#include <parx/launch/detail/rank_variables.hpp>
#include <parx/launch/detail/reserved_port.hpp>
#include <parx/launch/detail/signals_as_data.hpp>

namespace parx {

enum class output_tags {
  rank,  ///< "[rank 3] " before each line
  none,
};

struct agent_options {
  int ranks = 1;
  std::vector<std::string> command = {};  ///< the program and its arguments
  /// Where each rank's output goes, as rank_R.out and rank_R.err. Empty: to parxrun's own.
  std::string log_dir = {};
  output_tags tags = output_tags::rank;
  /// How long the ranks may take to end once parxrun was told to stop.
  std::chrono::milliseconds grace{5000};
  environment variables = {};  ///< added to the ranks' environment
};

namespace detail {

class agent {
 public:
  explicit agent(const agent_options& options) : options_(options) {
    require(options.ranks >= 1, "-n {}: a job has at least one rank", options.ranks);
    require(options.ranks <= 4096, "-n {}: more than 4096 ranks on one host", options.ranks);
    require(!options.command.empty(), "there is no program to run: parxrun -n 4 ./program");
    require(options.grace.count() >= 0, "--grace: the time cannot be negative");
  }

  [[nodiscard]] int run() {
    environment env = process_environment();
    for (const auto& [name, value] : options_.variables) env.insert_or_assign(name, value);
    const std::string file = find_program(options_.command.front(), env);
    const reserved_port port;
    const local_job job{options_.ranks, port.number(), random_hex(), random_hex(),
                        threads_per_rank()};
    if (!options_.log_dir.empty()) make_log_dir();

    const signals_as_data signals;
    start_ = clock::now();
    try {
      for (int rank = 0; rank < options_.ranks; ++rank) {
        start_rank(file, rank_variables(env, job, rank), rank, signals.mask_before());
      }
      while (!all_ended()) step(signals.reader());
      end_leftovers();
      while (!drained()) step(signals.reader());
    } catch (...) {
      end_leftovers();
      throw;
    }
    for (rank_process& process : ranks_) flush_output(process, console_);
    const int code = report();
    while (!console_.empty() && !gave_up_on_output_) step(signals.reader());
    return code;
  }

 private:
  using clock = deadline::clock;
  // The others get a moment to say what they saw and one to clean up: together under a second.
  static constexpr std::chrono::milliseconds last_words{250};
  static constexpr std::chrono::milliseconds failure_grace{500};

  [[nodiscard]] bool to_files() const noexcept { return !options_.log_dir.empty(); }
  /// A single rank writes where parxrun would, so that it finds the terminal it expects.
  [[nodiscard]] bool passes_output_on() const noexcept { return !to_files() && options_.ranks > 1; }

  [[nodiscard]] int threads_per_rank() const {
    cpu_set_t cpus;
    const int count = ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    return std::max(1, count / options_.ranks);
  }

  void make_log_dir() const {
    std::error_code why;
    std::filesystem::create_directories(options_.log_dir, why);
    if (why) {
      throw_error(errc::io, "cannot make the log folder {}: {}. Name another one with --log-dir",
                  options_.log_dir, why.message());
    }
  }

  void start_rank(const std::string& file, const environment& env, int rank, const sigset_t& mask) {
    rank_process process;
    process.rank = rank;
    if (options_.tags == output_tags::rank) process.prefix = fmt::format("[rank {}] ", rank);
    const descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    standard_streams streams;
    // A rank's process group is in the background: reading the terminal would stop it.
    if (rank > 0 || ::isatty(STDIN_FILENO) == 1) streams.in = nothing.get();
    descriptor out;
    descriptor err;
    if (to_files()) {
      const std::string stem = fmt::format("{}/rank_{}", options_.log_dir, rank);
      process.error_log = stem + ".err";
      out = create_log(stem + ".out");
      err = create_log(process.error_log);
    } else if (passes_output_on()) {
      out = open_stream(process, stream::out);
      err = open_stream(process, stream::err);
    }
    if (out.valid()) streams.out = out.get();
    if (err.valid()) streams.err = err.get();
    process.pid = start_child(file, options_.command, env, streams, mask);
    ranks_.push_back(std::move(process));
  }

  /// Prepares our end of a rank's output and returns the rank's.
  [[nodiscard]] static descriptor open_stream(rank_process& process, stream which) {
    const bool terminal = process.rank == 0 && console::is_terminal(which);
    output_channel channel =
        terminal ? make_terminal(which == stream::out ? STDOUT_FILENO : STDERR_FILENO,
                                 process.prefix.size())
                 : make_pipe();
    process[which].reader = std::move(channel.reader);
    process[which].lines =
        line_cutter(terminal ? carriage_return::rewrites : carriage_return::ordinary);
    return std::move(channel.writer);
  }

  /// Waits until something happens, and deals with it.
  void step(int signals) {
    std::vector<pollfd> interests{{signals, POLLIN, 0}};
    for (const stream which : {stream::out, stream::err})
      interests.push_back(console_.queue(which).interest());
    for (rank_process& process : ranks_) {
      for (const stream which : {stream::out, stream::err}) {
        // While our own reader is slow, the ranks wait: their pipes fill.
        const int reader = console_.queue(which).full() ? -1 : process[which].reader.get();
        interests.push_back({reader, POLLIN, 0});
      }
    }
    if (::poll(interests.data(), interests.size(), poll_timeout()) < 0 && errno != EINTR) {
      throw_error(errc::io, "parxrun cannot wait for its ranks: {}", errno_text(errno));
    }
    if (interests[1].revents != 0) console_.queue(stream::out).write_some();
    if (interests[2].revents != 0 && !console_.queue(stream::err).empty()) {
      console_.queue(stream::err).write_some();
    }
    for (std::size_t i = 3; i < interests.size(); ++i) {
      if (interests[i].revents == 0) continue;
      pass_output_on(ranks_[(i - 3) / 2], static_cast<stream>((i - 3) % 2), console_);
    }
    if (interests[0].revents != 0) read_signals(signals);
    notice_ends();
    act_on_time();
  }

  [[nodiscard]] int poll_timeout() const {
    const auto now = clock::now();
    int timeout = -1;
    for (const auto& when : {terminate_at_, kill_at_, drain_until_}) {
      // What is overdue was dealt with, or waits for something that poll() will see.
      if (!when || *when <= now) continue;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*when - now).count();
      const int capped = static_cast<int>(std::min<decltype(left)>(left, 60'000));
      timeout = timeout < 0 ? capped : std::min(timeout, capped);
    }
    return timeout;
  }

  void read_signals(int signals) {
    signalfd_siginfo info{};
    while (::read(signals, &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      switch (signal) {
        case SIGCHLD:
          break;  // notice_ends() looks
        case SIGUSR1:
        case SIGUSR2:
          signal_ranks(signal);
          break;
        case SIGTSTP:
          signal_ranks(SIGSTOP);
          ::raise(SIGSTOP);
          signal_ranks(SIGCONT);
          break;
        // The reader of our output is gone (parxrun ... | head).
        case SIGPIPE:
          stop(SIGPIPE, SIGTERM);
          break;
        default:
          stop(signal, signal);
      }
    }
  }

  /// Somebody wants the job to end. Who asks twice does not want to wait.
  void stop(int because, int tell) {
    if (all_ended()) {
      gave_up_on_output_ = true;
      return;
    }
    if (stopped_by_ || failed_) {
      if (because != SIGPIPE) kill_at_ = clock::now();
      return;
    }
    stopped_by_ = because;
    signal_ranks(tell);
    kill_at_ = clock::now() + options_.grace;
  }

  /// To all ranks that still run, with all they have started.
  void signal_ranks(int signal) {
    for (rank_process& process : ranks_) {
      if (process.ended) continue;
      if (signal != SIGUSR1 && signal != SIGUSR2 && signal != SIGSTOP && signal != SIGCONT) {
        process.was_told = true;
      }
      ::kill(-process.pid, signal);
    }
  }

  void notice_ends() {
    bool failed = false;
    for (rank_process& process : ranks_) {
      exit_status status;
      if (process.ended || !has_ended(process.pid, status)) continue;
      process.ended = status;
      process.end_time = clock::now();
      failed |= !status.success() && !process.was_told;
    }
    if (!failed || failed_ || stopped_by_) return;
    failed_ = true;
    terminate_at_ = clock::now() + last_words;
    kill_at_ = *terminate_at_ + failure_grace;
  }

  void act_on_time() {
    const auto now = clock::now();
    if (terminate_at_ && now >= *terminate_at_) {
      terminate_at_.reset();
      signal_ranks(SIGTERM);
      signal_ranks(SIGCONT);  // a stopped process would not see it
    }
    if (kill_at_ && now >= *kill_at_) {
      kill_at_.reset();
      signal_ranks(SIGKILL);
    }
  }

  [[nodiscard]] bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const auto& process) { return process.ended; });
  }

  /// Kills what the ranks left running in their groups, and takes the ranks out of the process
  /// table.
  void end_leftovers() {
    for (const rank_process& process : ranks_) {
      ::kill(-process.pid, SIGKILL);
      reap(process.pid);
    }
    terminate_at_.reset();
    kill_at_.reset();
    // A daemon that left its group may hold a pipe open for ever.
    drain_until_ = clock::now() + std::chrono::seconds(1);
  }

  [[nodiscard]] bool drained() const {
    if (gave_up_on_output_) return true;
    // What waits for a slow reader of ours is not given up, however long it takes.
    if (drain_until_ && clock::now() >= *drain_until_ && console_.empty()) return true;
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const rank_process& process) { return process.output_closed(); });
  }

  [[nodiscard]] double seconds_until(clock::time_point when) const {
    return std::chrono::duration<double>(when - start_).count();
  }

  [[nodiscard]] rank_end end_of(const rank_process& process) const {
    return {process.rank,
            process.pid,
            *process.ended,
            process.was_told,
            seconds_until(process.end_time),
            std::any_of(process.last_lines.begin(), process.last_lines.end(), is_echo)};
  }

  /// Says how the job ended, unless all is well, and returns parxrun's exit code.
  [[nodiscard]] int report() {
    drain_until_.reset();
    const std::string command = fmt::format("{}", fmt::join(options_.command, " "));
    if (failed_) {
      std::vector<rank_end> ends;
      for (rank_process& process : ranks_) {
        if (!process.error_log.empty()) process.last_lines = tail_of(process.error_log, lines_kept);
        ends.push_back(end_of(process));
      }
      const std::size_t cause = find_cause(ends);
      const auto& lines = ranks_[cause].last_lines;
      console_.queue(stream::err)
          .add(failure_report(
              {command, ends[cause], ends, ranks_[cause].error_log, {lines.begin(), lines.end()}}));
      return ends[cause].status.shell_code();
    }
    if (!stopped_by_) return 0;
    std::vector<int> killed;
    for (const rank_process& process : ranks_) {
      if (process.ended->signal == SIGKILL) killed.push_back(process.rank);
    }
    std::string text = fmt::format("parxrun: ended by {}: {}", signal_name(*stopped_by_), command);
    if (!killed.empty()) {
      text += fmt::format("; rank {} did not end within {:.1f} s and was killed", rank_list(killed),
                          std::chrono::duration<double>(options_.grace).count());
    }
    console_.queue(stream::err).add(text + "\n");
    return 128 + *stopped_by_;
  }

  const agent_options& options_;
  std::vector<rank_process> ranks_;
  console console_;
  clock::time_point start_{};
  std::optional<int> stopped_by_;
  std::optional<clock::time_point> terminate_at_;
  std::optional<clock::time_point> kill_at_;
  std::optional<clock::time_point> drain_until_;
  bool failed_ = false;  ///< a rank failed by itself
  bool gave_up_on_output_ = false;
};

}  // namespace detail

/// Runs a job of local ranks to its end and returns the exit code for parxrun: 0 when all ranks
/// returned 0, that of the rank whose failure was the cause (128 + signal when it was killed), or
/// 128 + signal when this process was told to stop. Blocks. Reads and blocks this thread's SIGINT,
/// SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE and SIGTSTP meanwhile, so call it
/// from a process with one thread. Throws usage_error for wrong options, program_error for a
/// program that cannot be started, error when the system refuses files or processes.
[[nodiscard]] inline int run_ranks(const agent_options& options) {
  return detail::agent(options).run();
}

}  // namespace parx
