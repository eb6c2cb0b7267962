// run_ranks: starts a program as N ranks on this host and supervises them. This is parxrun.
//
// One thread, which waits in Boost.Asio for the ranks' output, for signals and timers. A job ends
// in one of four ways. All ranks return 0. A rank fails: the others are ended within a second,
// unless they go on (on_loss). parxrun is told to stop: the ranks have the time `grace` to save
// their work. A rank returns 75 (stopped_exit_code) because it has saved its work: the others have
// the time `grace` to do the same. No process that a rank has started is left behind: this process
// adopts it (orphans.hpp), and where this one is killed its guard ends it (job_guard.hpp). Only
// parxrun needs Boost; the ranks' programs do not.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <parx/comm/flight/directory.hpp>
#include <parx/comm/flight/reader.hpp>
#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hmac.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/stopped.hpp>
#include <parx/launch/agent_options.hpp>
#include <parx/launch/detail/child_process.hpp>
#include <parx/launch/detail/console.hpp>
#include <parx/launch/detail/divergence_text.hpp>
#include <parx/launch/detail/failure_folder.hpp>
#include <parx/launch/detail/failure_report.hpp>
#include <parx/launch/detail/job_guard.hpp>
#include <parx/launch/detail/kept_store.hpp>
#include <parx/launch/detail/missing_instructions.hpp>
#include <parx/launch/detail/orphans.hpp>
#include <parx/launch/detail/output_channel.hpp>
#include <parx/launch/detail/rank_process.hpp>
#include <parx/launch/detail/rank_variables.hpp>
#include <parx/launch/detail/secret_file.hpp>
#include <parx/launch/detail/verdict.hpp>
#include <parx/launch/detail/reserved_port.hpp>

namespace parx::inline PARX_ABI {

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
    const bool encrypts = env_flag(env, "PARX_TLS").value_or(false);
    // Without HMAC there is no secret; the ranks warn of that.
    const std::string secret = why_no_hmac().empty() ? random_hex() : std::string();
    const secret_file file_with_secret(secret);
    const bool in_file = !secret.empty() && !file_with_secret.path().empty();
    const local_job job{.ranks = options_.ranks,
                        .port = port.number(),
                        .run_id = random_hex(),
                        .secret_file = in_file ? file_with_secret.path() : std::string(),
                        .secret = in_file ? std::string() : secret,
                        .keeps_store = goes_on(),
                        .threads_per_rank = threads_per_rank(options_.ranks),
                        .threads = options_.threads};
    if (!options_.log_dir.empty()) make_log_folder(options_.log_dir);
    failures_.emplace(env, name_of_start(job.run_id, job.host, job.port));

    guard_.emplace(job.run_id);
    orphans_.except(guard_->pid());
    catch_signals();
    start_ = clock::now();
    try {
      for (int rank = 0; rank < options_.ranks; ++rank) {
        start_rank(file, rank_variables(env, job, rank, failures_->error_file(rank)), rank);
      }
      // After the forks, because it starts a thread. Ranks that are faster retry.
      if (goes_on()) {
        store_.emplace(job, secret.empty() ? std::nullopt
                                           : std::optional(job_key(secret, job.run_id, encrypts)));
      }
      for (rank_process& process : ranks_) {
        for (const stream which : {stream::out, stream::err}) pass_next_output_on(process, which);
      }
      // run_one() always has work: the wait for the next signal.
      while (!all_ended()) io_.run_one();
      end_leftovers();
      while (!drained()) io_.run_one();
    } catch (...) {
      end_leftovers();
      throw;
    }
    for (rank_process& process : ranks_) flush_output(process, console_, errors_);
    console_.queue(stream::err).add(errors_.summary());
    const int code = report();
    while (!console_.empty() && !gave_up_on_output_) io_.run_one();
    return code;
  }

 private:
  using clock = deadline::clock;
  // After a failure the others have the first time to report it by themselves, and after SIGTERM
  // the second one to clean up: together less than a second.
  static constexpr std::chrono::milliseconds report_grace{250};
  static constexpr std::chrono::milliseconds failure_grace{500};
  static constexpr std::chrono::milliseconds same_request{100};
  static constexpr std::chrono::milliseconds passed_on_within{1000};

  [[nodiscard]] bool goes_on() const noexcept { return options_.on_loss == on_loss::go_on; }
  [[nodiscard]] bool to_files() const noexcept { return !options_.log_dir.empty(); }
  /// A single rank inherits parxrun's output, so that it has the terminal that it expects.
  [[nodiscard]] bool passes_output_on() const noexcept { return !to_files() && options_.ranks > 1; }

  void start_rank(const std::string& file, const environment& env, int rank) {
    rank_process process(rank, io_);
    if (options_.tags == output_tags::rank) process.prefix = formatted("[rank {}] ", rank);
    const descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    standard_streams streams;
    // A rank's process group is in the background: reading from the terminal would stop it.
    if (rank > 0 || ::isatty(STDIN_FILENO) == 1) streams.in = nothing.get();
    descriptor out;
    descriptor err;
    if (to_files()) {
      const std::string stem = formatted("{}/rank_{}", options_.log_dir, rank);
      process.error_log = stem + ".err";
      out = create_log(stem + ".out");
      err = create_log(process.error_log);
    } else if (passes_output_on()) {
      out = open_stream(process, stream::out);
      err = open_stream(process, stream::err);
    }
    if (out.valid()) streams.out = out.get();
    if (err.valid()) streams.err = err.get();
    process.pid = start_child(file, options_.command, env, streams, mask_before_);
    guard_->add(process.pid);
    orphans_.except(process.pid);
    ranks_.push_back(std::move(process));
  }

  /// Makes a pipe or terminal for a rank's output. Keeps the reader and returns the writer.
  [[nodiscard]] static descriptor open_stream(rank_process& process, stream which) {
    const bool terminal = process.rank == 0 && console::is_terminal(which);
    output_channel channel =
        terminal ? make_terminal(which == stream::out ? STDOUT_FILENO : STDERR_FILENO,
                                 process.prefix.size())
                 : make_pipe();
    process[which].reader.assign(channel.reader.release());
    process[which].reader.non_blocking(true);
    process[which].lines =
        line_cutter(terminal ? carriage_return::rewrites : carriage_return::ordinary);
    return std::move(channel.writer);
  }

  void pass_next_output_on(rank_process& process, stream which) {
    if (!process[which].reader.is_open()) return;
    const auto read = [this, &process, which] {
      if (which == stream::err) process.has_failed = failures_->has_record(process.rank);
      pass_output_on(process, which, console_, errors_);
      pass_next_output_on(process, which);
    };
    // While the reader of parxrun's own output is slow, the ranks block because their pipes fill.
    const auto read_if_room = [this, which, read](const boost::system::error_code&) {
      console_.queue(which).when_not_full(read);
    };
    process[which].reader.async_wait(boost::asio::posix::descriptor_base::wait_read, read_if_room);
  }

  void catch_signals() {
    sigset_t caught;
    ::sigemptyset(&caught);
    for (const int signal :
         {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE, SIGTSTP}) {
      struct sigaction action {};
      ::sigaction(signal, nullptr, &action);
      // An ignored signal (SIGHUP under nohup) stays ignored. Not SIGCHLD, which some parents make
      // their children ignore: without it the exit status of a rank would be lost.
      if (action.sa_handler == SIG_IGN && signal != SIGCHLD) continue;
      signals_.add(signal);
      ::sigaddset(&caught, signal);
    }
    ::pthread_sigmask(SIG_UNBLOCK, &caught, &mask_before_);
    handle_next_signal();
  }

  void handle_next_signal() {
    signals_.async_wait([this](const boost::system::error_code&, int signal) {
      handle(signal);
      handle_next_signal();
    });
  }

  void handle(int signal) {
    switch (signal) {
      case SIGCHLD:
        static_cast<void>(orphans_.left());
        notice_ends();
        break;
      case SIGUSR1:
      case SIGUSR2:
        signal_ranks(signal);
        break;
      case SIGTSTP:
        signal_ranks(SIGSTOP);
        ::raise(SIGSTOP);
        signal_ranks(SIGCONT);
        break;
      // The reader of parxrun's output is gone (parxrun ... | head).
      case SIGPIPE:
        stop(SIGPIPE, SIGTERM);
        break;
      default:
        stop(signal, signal);
    }
  }

  /// Ends the job. A second request kills it, unless it follows at once, which is the same request:
  /// timeout(1) signals its child and then the child's process group. Only a person at the terminal
  /// (SIGINT) is as quick as a busy launcher.
  void stop(int because, int tell) {
    if (all_ended()) {
      gave_up_on_output_ = true;
      return;
    }
    if (stopped_by_ || (failed_ && !goes_on())) {
      const auto at_once = because == SIGINT ? same_request : passed_on_within;
      if (because == SIGPIPE || clock::now() - asked_at_ <= at_once) return;
      asked_again_ = true;
      return signal_ranks(SIGKILL);
    }
    stopped_by_ = because;
    asked_at_ = clock::now();
    signal_ranks(tell);
    after(options_.grace, kill_timer_, [this] { signal_ranks(SIGKILL); });
  }

  /// Signals the process groups of all ranks that still run.
  void signal_ranks(int signal) {
    notice_ends();  // first, so that a rank that has ended by itself does not count as signalled
    for (rank_process& process : ranks_) {
      if (process.ended) continue;
      if (signal != SIGUSR1 && signal != SIGUSR2 && signal != SIGSTOP && signal != SIGCONT) {
        process.was_signalled = true;
      }
      ::kill(-process.pid, signal);
    }
  }

  void notice_ends() {
    bool failed = false;
    bool saved = false;
    std::string end;  // of one of the ranks
    for (rank_process& process : ranks_) {
      exit_status status;
      if (process.ended || !has_ended(process.pid, status)) continue;
      process.ended = status;
      process.end_time = clock::now();
      failed |= end_of(process).failed_by_itself();
      saved |= status.has_saved();
      if (end.empty()) end = formatted("rank {} ended ({})", process.rank, to_string(status));
    }
    if (goes_on() && !stopped_by_ && !end.empty()) end_those_left_out(store_->members_after(end));
    if ((failed_ && !goes_on()) || stopped_by_) return;
    if (saved && !std::exchange(saved_, true)) {
      after(options_.grace, kill_timer_, [this] { signal_ranks(SIGKILL); });
    }
    if (!failed) return;
    failed_ = true;
    if (goes_on()) return;
    for (const rank_process& process : ranks_) {
      if (!process.ended && is_stopped(process.pid)) stopped_ranks_.push_back(process.rank);
    }
    end_the_others();
  }

  void end_the_others() {
    after(report_grace, terminate_timer_, [this] {
      signal_ranks(SIGTERM);
      signal_ranks(SIGCONT);  // a stopped process receives SIGTERM only then
    });
    after(report_grace + failure_grace, kill_timer_, [this] { signal_ranks(SIGKILL); });
  }

  /// A rank that hung or was stopped while the others went on without it can only end.
  void end_those_left_out(const std::optional<std::vector<int>>& members) {
    if (!members || all_ended()) return;
    for (const int rank : *members) {
      if (!ranks_[static_cast<std::size_t>(rank)].ended) return;
    }
    failed_ = true;
    end_the_others();
  }

  template <typename Action>
  static void after(clock::duration time, boost::asio::steady_timer& timer, Action act) {
    timer.expires_after(time);
    timer.async_wait([act](const boost::system::error_code& cancelled) {
      if (!cancelled) act();
    });
  }

  [[nodiscard]] bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const auto& process) { return process.ended; });
  }

  /// Kills the processes that are left of the job, and reaps the ranks.
  void end_leftovers() {
    if (!failed_ && !stopped_by_ && all_ended()) tell_leftovers();
    for (const rank_process& process : ranks_) {
      ::kill(-process.pid, SIGKILL);
      reap(process.pid);
    }
    orphans_.kill();
    // A process of another user, which cannot be killed, may keep a pipe open forever.
    after(std::chrono::seconds(1), drain_timer_, [this] { drain_time_is_over_ = true; });
  }

  /// A script that starts its program in the background and does not wait for it ends the job by
  /// that. What ends by itself within a moment (a `tee` of the rank's output) is no matter.
  void tell_leftovers() {
    const auto limit = deadline::after(std::chrono::seconds(1));
    std::vector<pid_t> left;
    while (!(left = orphans_.left()).empty() && !limit.passed()) {
      io_.run_one_for(std::chrono::milliseconds(2));
    }
    if (!left.empty()) console_.queue(stream::err).add(orphans_text(left));
  }

  [[nodiscard]] bool drained() const {
    if (gave_up_on_output_) return true;
    // Output that waits for a slow reader is never dropped.
    if (drain_time_is_over_ && console_.empty()) return true;
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const rank_process& process) { return process.output_closed(); });
  }

  [[nodiscard]] rank_end end_of(const rank_process& process) const {
    return {process.rank,
            process.pid,
            *process.ended,
            process.was_signalled,
            std::chrono::duration<double>(process.end_time - start_).count(),
            (to_files() || passes_output_on()) && process.last_lines.empty(),
            failures_->record_of_rank(process.rank)};
  }

  /// The headline for a rank that failed because of others: which rank left early or diverged.
  /// Empty where it failed by itself or that is not known.
  [[nodiscard]] std::string divergence_of(const verdict& found,
                                          const std::vector<rank_end>& ends) const {
    const auto& record = ends[found.cause].record;
    if (!record || record->kind() == failure_kind::own) return {};
    const std::vector<flight_log> logs = readable_logs(failures_->recorders().directory);
    // A rank may leave early because its last call was another one, which needed nobody.
    if (std::string text = differing_calls_text(logs); !text.empty()) return text;
    for (const rank_end& each : ends) {
      if (each.rank != found.blamed || !each.status.success()) continue;
      return formatted("rank {} ended with exit code 0 while others still waited for it",
                       each.rank);
    }
    std::string text = divergence_text(logs, stopped_ranks_);
    return text.empty() && found.blamed >= 0 ? blame_text(*record, found.blamed) : text;
  }

  [[nodiscard]] bool has_recorders() const {
    const descriptor folder = find_flight_directory(failures_->recorders().directory);
    return folder.valid() && !flight_file_names(folder).empty();
  }

  /// Prints how the job ended, unless it succeeded, and returns parxrun's exit code.
  [[nodiscard]] int report() {
    const std::string command = joined_text(options_.command, " ");
    const bool some_succeeded =
        std::any_of(ranks_.begin(), ranks_.end(),
                    [](const rank_process& each) { return each.ended->success(); });
    const bool was_stopped = stopped_by_ || saved_;
    if (failed_ && goes_on() && some_succeeded && !was_stopped) {
      for (const rank_process& each : ranks_) {
        if (each.ended->success()) continue;
        console_.queue(stream::err)
            .add(formatted("parxrun: rank {} was lost ({}); others have gone on to the end\n",
                           each.rank, to_string(*each.ended)));
      }
      return 0;
    }
    if (failed_ && !(goes_on() && was_stopped)) {
      std::vector<rank_end> ends;
      for (rank_process& process : ranks_) {
        if (!process.error_log.empty()) process.last_lines = tail_of(process.error_log, lines_kept);
        ends.push_back(end_of(process));
      }
      if (const std::string answer = common_answer(ends, command); !answer.empty()) {
        console_.queue(stream::err).add(answer);
        return ends.front().status.shell_code();
      }
      const verdict found = judge(ends);
      const std::size_t cause = found.cause;
      const auto& lines = ranks_[cause].last_lines;
      console_.queue(stream::err)
          .add(failure_report(
              {command,
               ends[cause],
               ends,
               ranks_[cause].error_log,
               {lines.begin(), lines.end()},
               has_recorders() ? failures_->recorders().directory : "",
               divergence_of(found, ends),
               missing_instructions(ends[cause].status, options_.command, process_environment())}));
      return ends[cause].status.shell_code();
    }
    if (!stopped_by_ && !saved_) {
      // Ranks that ended by exit() have not removed theirs.
      if (failures_->recorders().files == flight_files::removed_after_success) {
        clear_flight_directory(failures_->recorders().directory);
      }
      return 0;
    }
    std::vector<int> killed;
    bool all_saved = true;
    for (const rank_process& process : ranks_) {
      if (process.ended->signal == SIGKILL) killed.push_back(process.rank);
      all_saved &= process.ended->has_saved();
    }
    std::string text = formatted("parxrun: ended by {}: {}",
                                 stopped_by_ ? signal_name(*stopped_by_) : "its ranks", command);
    if (all_saved) text += "; the ranks have saved their work (exit code 75)";
    if (!killed.empty()) {
      const double grace = std::chrono::duration<double>(options_.grace).count();
      text += formatted("; rank {} ", rank_list(killed)) +
              (asked_again_ ? "was killed on the second signal"
                            : formatted("did not end within {:.1f} s and was killed", grace));
    }
    console_.queue(stream::err).add(text + "\n");
    return stopped_by_ && !all_saved ? 128 + *stopped_by_ : stopped_exit_code;
  }

  const agent_options& options_;
  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_{io_};
  boost::asio::steady_timer terminate_timer_{io_};
  boost::asio::steady_timer kill_timer_{io_};
  boost::asio::steady_timer drain_timer_{io_};
  std::optional<failure_folder> failures_;
  orphans orphans_;
  std::optional<job_guard> guard_;
  sigset_t mask_before_{};  ///< the signal mask at the start, which the ranks inherit
  console console_{io_};
  repeated_errors errors_;
  std::vector<rank_process> ranks_;
  clock::time_point start_{};
  clock::time_point asked_at_{};
  std::optional<int> stopped_by_;
  bool asked_again_ = false;         ///< told to stop a second time
  std::optional<kept_store> store_;  ///< if the ranks go on after a loss
  bool failed_ = false;              ///< a rank failed by itself
  std::vector<int> stopped_ranks_;   ///< those whose processes were stopped at that time
  bool saved_ = false;               ///< a rank has ended with its work saved
  bool drain_time_is_over_ = false;
  bool gave_up_on_output_ = false;
};

}  // namespace detail

/// Runs a job of local ranks to its end and returns parxrun's exit code: 0 when all ranks (with
/// on_loss::go_on: at least one) returned 0; the code of the rank that caused a failure (128 +
/// signal when it was killed); 75 when the ranks ended with that code; else 128 + signal when this
/// process was told to stop. Blocks. Catches SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2,
/// SIGCHLD, SIGPIPE and SIGTSTP meanwhile, and leaves them unblocked and at their defaults, and
/// adopts orphans from then on, so call it from a process with one thread. Throws usage_error for
/// wrong options, program_error for a program that cannot be started, error when the system refuses
/// files or processes.
[[nodiscard]] inline int run_ranks(const agent_options& options) {
  fill_standard_descriptors();
  return detail::agent(options).run();
}

}  // namespace parx
