// agent: parxrun on one host: starts a program as N ranks and supervises them.
//
// One thread, which waits in Boost.Asio for the ranks' output, for signals and timers. A job ends
// in one of four ways. All ranks return 0. A rank fails: the others are ended within a second,
// unless they go on (on_loss). parxrun is told to stop: the ranks have the time `grace` to save
// their work. A rank returns 75 (stopped_exit_code) because it has saved its work: the others have
// the time `grace` to do the same. No process that a rank has started is left behind: this process
// adopts it (orphans.hpp), and where this one is killed its guard ends it (job_guard.hpp). Only
// parxrun needs Boost; the ranks' programs do not.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tools/common/find_program.hpp"
#include "tools/common/flight/reader.hpp"
#include "tools/common/job_report.hpp"
#include "tools/common/rank_list.hpp"
#include "tools/parxrun/agent_options.hpp"
#include "tools/parxrun/agents.hpp"
#include "tools/parxrun/failures/divergence_text.hpp"
#include "tools/parxrun/failures/failure_folder.hpp"
#include "tools/parxrun/failures/failure_report.hpp"
#include "tools/parxrun/failures/job_end.hpp"
#include "tools/parxrun/failures/verdict.hpp"
#include "tools/parxrun/nodes/kept_store.hpp"
#include "tools/parxrun/nodes/report_file.hpp"
#include "tools/parxrun/nodes/report_of_node.hpp"
#include "tools/parxrun/ranks/after.hpp"
#include "tools/parxrun/ranks/caught_signals.hpp"
#include "tools/common/child_process.hpp"
#include "tools/parxrun/ranks/console.hpp"
#include "tools/parxrun/ranks/job_guard.hpp"
#include "tools/parxrun/ranks/node_ranks.hpp"
#include "tools/parxrun/ranks/orphans.hpp"
#include "tools/parxrun/ranks/output_channel.hpp"
#include "tools/parxrun/ranks/rank_output.hpp"
#include "tools/parxrun/ranks/rank_process.hpp"
#include "tools/parxrun/ranks/rank_variables.hpp"
#include "tools/parxrun/ranks/reserved_port.hpp"
#include "tools/parxrun/ranks/secret_file.hpp"
#include <parx/comm/flight/directory.hpp>
#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hmac.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/signal_name.hpp>
#include <parx/core/stopped.hpp>
#include <parx/core/unix_time.hpp>
#include <parx/core/version.hpp>

namespace parx::inline PARX_ABI::detail {

class agent {
 public:
  explicit agent(const agent_options& options) : options_(options) {}

  [[nodiscard]] int run() {
    environment env = process_environment();
    for (const auto& [name, value] : options_.variables) env.insert_or_assign(name, value);
    env.erase("PARX_AGENT");  // of an outer parxrun
    const std::string file = find_program(options_.command.front(), env);
    const reserved_port port;
    // Where parxrun keeps parx's store, a program that is not of parx needs another port.
    const std::optional<reserved_port> other_port =
        goes_on() ? std::make_optional<reserved_port>() : std::nullopt;
    const bool encrypts = env_flag(env, "PARX_TLS").value_or(false);
    // Without HMAC there is no secret; the ranks warn of that.
    const std::string secret = why_no_hmac().empty() ? random_hex() : std::string();
    const secret_file file_with_secret(secret);
    const bool in_file = !secret.empty() && !file_with_secret.path().empty();
    const local_job job{.ranks = options_.ranks,
                        .port = port.number(),
                        .other_port = other_port ? other_port->number() : std::uint16_t{0},
                        .run_id = random_hex(),
                        .secret_file = in_file ? file_with_secret.path() : std::string(),
                        .secret = in_file ? std::string() : secret,
                        .keeps_store = goes_on(),
                        .threads_per_rank = threads_per_rank(options_.ranks),
                        .threads = options_.threads};
    job_ = {.id = job.run_id, .command = joined_text(options_.command, " "), .parx = PARX_VERSION};
    job_.generations.push_back(
        {.start = unix_seconds(),
         .members = {{.node = own_node_name(env), .ranks = options_.ranks}}});
    write_report(options_, job_);
    failures_.emplace(env, name_of_start(job.run_id, job.host, job.port));

    guard_.emplace("PARX_RUN_ID=" + job.run_id);
    orphans_.except(guard_->pid());
    signals_.emplace(io_, [this](int signal) { handle(signal); });
    around_.emplace(
        rank_surroundings{io_, console_, errors_, *guard_, orphans_, signals_->mask_before()});
    ranks_.emplace(*around_, *failures_, rank_output::of(options_));
    try {
      ranks_->start(file, options_.command, 0, options_.ranks, [&](int rank) {
        return rank_variables(env, job, rank, failures_->error_file(rank));
      });
      // After the forks, because it starts a thread. Ranks that are faster retry.
      if (goes_on()) {
        std::optional<job_key> key;
        if (!secret.empty()) key.emplace(secret, job.run_id, encrypts);
        store_.emplace(kept_store_options{
            .address = job.host, .port = job.port, .run_id = job.run_id, .key = std::move(key)});
      }
      ranks_->pass_output_on();
      // run_one() always has work: the wait for the next signal.
      while (!ranks_->all_ended()) io_.run_one();
      end_leftovers();
      while (!drained()) io_.run_one();
    } catch (...) {
      end_leftovers();
      throw;
    }
    ranks_->flush();
    console_.queue(stream::err).add(errors_.summary());
    const int code = report();
    while (!console_.empty() && !gave_up_on_output_) io_.run_one();
    return code;
  }

 private:
  using clock = deadline::clock;

  [[nodiscard]] bool goes_on() const noexcept { return options_.on_loss == on_loss::go_on; }
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

  /// Ends the job. A second request kills it, unless it is the same one.
  void stop(int because, int tell) {
    if (ranks_->all_ended()) {
      gave_up_on_output_ = true;
      return;
    }
    if (stopped_by_ || (failed_ && !goes_on())) {
      if (because == SIGPIPE || clock::now() - asked_at_ <= same_request_within(because)) return;
      asked_again_ = true;
      return signal_ranks(SIGKILL);
    }
    stopped_by_ = because;
    asked_at_ = clock::now();
    signal_ranks(tell);
    kill_after_grace();
  }
  void kill_after_grace() {
    ranks_->kill_after(options_.grace, [this] { notice_ends(); });
  }

  /// Signals the process groups of all ranks that still run.
  void signal_ranks(int signal) {
    notice_ends();  // first, so that a rank that has ended by itself does not count as signalled
    ranks_->signal(signal);
  }

  void notice_ends() {
    const auto [failed, saved, ended] = ranks_->notice_ends();
    if (goes_on() && !stopped_by_ && !ended.empty()) {
      end_those_left_out(
          store_->members_after(ended.front().rank, to_string(ended.front().status)));
    }
    if ((failed_ && !goes_on()) || stopped_by_) return;
    if (saved && !std::exchange(saved_, true)) kill_after_grace();
    if (!failed) return;
    failed_ = true;
    if (goes_on()) return;
    for (const rank_process& process : ranks_->ranks()) {
      if (!process.ended && is_stopped(process.pid)) stopped_ranks_.push_back(process.rank);
    }
    end_the_others();
  }

  void end_the_others() {
    ranks_->end_the_others([this] { notice_ends(); });
  }

  /// A rank that hung or was stopped while the others went on without it can only end.
  void end_those_left_out(const std::optional<std::vector<int>>& members) {
    if (!members || ranks_->all_ended()) return;
    for (const int rank : *members) {
      if (!ranks_->ranks()[static_cast<std::size_t>(rank)].ended) return;
    }
    failed_ = true;
    end_the_others();
  }

  /// Kills the processes that are left of the job, and reaps the ranks.
  void end_leftovers() {
    if (!failed_ && !stopped_by_ && ranks_->all_ended()) tell_leftovers();
    ranks_->kill_and_reap();
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
    return ranks_->output_closed();
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
    if (record->code != errc::mismatch) {
      if (std::string text = early_exit_text(found, ends); !text.empty()) return text;
    }
    std::string text = divergence_text(logs, stopped_ranks_);
    return text.empty() && found.blamed >= 0 ? blame_text(*record, found.blamed) : text;
  }

  /// Prints how the job ended, unless it succeeded, and returns parxrun's exit code.
  [[nodiscard]] int report() {
    const bool some_succeeded =
        std::any_of(ranks_->ranks().begin(), ranks_->ranks().end(),
                    [](const rank_process& each) { return each.ended->success(); });
    const bool was_stopped = stopped_by_ || saved_;
    const bool went_on = failed_ && goes_on() && some_succeeded && !was_stopped;
    if (went_on) {
      for (const rank_process& each : ranks_->ranks()) {
        if (each.ended->success()) continue;
        console_.queue(stream::err)
            .add(formatted("parxrun: rank {} was lost ({}); others have gone on to the end\n",
                           each.rank, to_string(*each.ended)));
      }
    }
    const environment env = process_environment();
    job_end end{.command = job_.command, .world_size = options_.ranks};
    end.reports.push_back(
        report_of(*ranks_, *failures_, own_node_name(env), options_.command, env));
    const std::vector<rank_end>& ends = end.reports.front().ranks;
    if (failed_ && !went_on && !(goes_on() && was_stopped)) {
      const verdict found = judge(ends);
      end.code = ends[found.cause].status.shell_code();
      end.divergence = divergence_of(found, ends);
    } else if (was_stopped) {
      end.told = true;
      end.why = "by " + (stopped_by_ ? signal_name(*stopped_by_) : "its ranks");
      end.killed = killed_text(ends);
      end.code =
          stopped_by_ && !all_have_saved(end.reports) ? 128 + *stopped_by_ : stopped_exit_code;
    }
    print_end(console_, end);
    job_.generations.front().end = unix_seconds();
    job_.generations.front().outcome = outcome_of(end);
    job_.generations.front().nodes = end.reports;
    write_report(options_, job_);
    return end.code;
  }

  /// Which ranks have not ended in time after parxrun was told to stop.
  [[nodiscard]] std::string killed_text(const std::vector<rank_end>& ends) const {
    std::vector<int> killed;
    for (const rank_end& each : ends) {
      if (each.status.signal == SIGKILL) killed.push_back(each.rank);
    }
    if (killed.empty()) return {};
    const double grace = std::chrono::duration<double>(options_.grace).count();
    return formatted("; rank {} ", rank_list(killed)) +
           (asked_again_ ? "was killed on the second signal"
                         : formatted("did not end within {:.1f} s and was killed", grace));
  }

  const agent_options& options_;
  boost::asio::io_context io_{1};
  std::optional<caught_signals> signals_;
  boost::asio::steady_timer drain_timer_{io_};
  std::optional<failure_folder> failures_;
  orphans orphans_;
  std::optional<job_guard> guard_;
  console console_{io_};
  repeated_errors errors_;
  std::optional<rank_surroundings> around_;
  std::optional<node_ranks> ranks_;
  clock::time_point asked_at_{};
  std::optional<int> stopped_by_;
  bool asked_again_ = false;         ///< told to stop a second time
  std::optional<kept_store> store_;  ///< if the ranks go on after a loss
  bool failed_ = false;              ///< a rank failed by itself
  std::vector<int> stopped_ranks_;   ///< those whose processes were stopped at that time
  bool saved_ = false;               ///< a rank has ended with its work saved
  job_report job_;
  bool drain_time_is_over_ = false;
  bool gave_up_on_output_ = false;
};

int run_agent(const agent_options& options) { return agent(options).run(); }

}  // namespace parx::detail
