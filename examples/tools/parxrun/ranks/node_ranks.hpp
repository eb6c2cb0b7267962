// node_ranks: the ranks of one generation on this node: starts them, passes their output on,
// notices how they end, and ends them. What their ends mean for the job is for its owner to say.
//
// One thread, that of its io_context, whose handlers refer to this object: it is destroyed only
// after drain() is done and one more turn of the context.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tools/common/child_process.hpp"
#include "tools/common/job_report.hpp"
#include "tools/parxrun/failures/failure_folder.hpp"
#include "tools/parxrun/failures/repeated_errors.hpp"
#include "tools/parxrun/nodes/generation.hpp"
#include "tools/parxrun/ranks/after.hpp"
#include "tools/parxrun/ranks/console.hpp"
#include "tools/parxrun/ranks/job_guard.hpp"
#include "tools/parxrun/ranks/line_cutter.hpp"
#include "tools/parxrun/ranks/orphans.hpp"
#include "tools/parxrun/ranks/output_channel.hpp"
#include "tools/parxrun/ranks/rank_output.hpp"
#include "tools/parxrun/run_ranks.hpp"
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>

namespace parx::inline PARX_ABI::detail {

/// One of a rank's two outputs, where parxrun passes it on.
struct rank_stream {
  explicit rank_stream(boost::asio::io_context& io) : reader(io) {}

  boost::asio::posix::stream_descriptor reader;
  line_cutter lines;
  descriptor copy = {};  ///< the log file that gets all of it as well
};

/// One rank: its process, its output, how it ended.
struct rank_process {
  rank_process(int number, boost::asio::io_context& io)
      : rank(number), streams{rank_stream(io), rank_stream(io)} {}

  int rank;
  pid_t pid = 0;
  std::string prefix;  ///< of its lines on the console
  bool shown = true;   ///< it has lines there
  rank_stream streams[2];
  std::string error_log;               ///< the file of its standard error, if it has one
  std::deque<std::string> last_lines;  ///< of its standard error, if parxrun passes it on
  /// The console's lines before the last of them; empty where it is not shown.
  std::optional<std::size_t> console_lines = {};
  bool was_signalled = false;  ///< by parxrun, before it ended
  bool has_failed = false;     ///< it has left a record: what it prints now may be its error
  std::optional<exit_status> ended;
  deadline::clock::time_point end_time{};

  [[nodiscard]] rank_stream& operator[](stream which) noexcept {
    return streams[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] bool output_closed() const noexcept {
    return !streams[0].reader.is_open() && !streams[1].reader.is_open();
  }
};

/// How many lines of a failed rank's standard error are shown again at the end.
inline constexpr std::size_t lines_kept = 10;

/// What the ranks of all generations of a node share; the node's agent owns it.
struct rank_surroundings {
  boost::asio::io_context& io;
  console& output;
  repeated_errors& errors;
  job_guard& guard;
  orphans& left_behind;
  sigset_t signal_mask;            ///< which the ranks inherit
  bool gave_up_on_output = false;  ///< its reader is not waited for any more
};

/// What is said of processes that the ranks have left behind.
enum class leftovers { told, untold };

class node_ranks {
 public:
  using clock = deadline::clock;

  /// What notice_ends() has found.
  struct ended_rank {
    int rank;
    exit_status status;
  };
  struct noticed {
    std::optional<ended_rank> failed;  ///< the first one that has failed by itself
    bool saved = false;
    std::vector<ended_rank> ended;
  };

  /// `failures` is where the ranks leave the records of their failures.
  node_ranks(rank_surroundings& around, const failure_folder& failures, rank_output output)
      : around_(around),
        failures_(failures),
        output_(std::move(output)),
        terminate_timer_(around.io),
        kill_timer_(around.io),
        drain_timer_(around.io) {}
  node_ranks(const node_ranks&) = delete;
  node_ranks& operator=(const node_ranks&) = delete;

  /// Starts `count` ranks with the numbers from `first` on. Throws as start_child() does; those
  /// that are started then go on.
  void start(const std::string& file, const std::vector<std::string>& command, int first, int count,
             const std::function<environment(int rank)>& variables) {
    start_ = clock::now();
    inherits_ = count == 1 && output_.inherited_by_one && !output_.log_stem;
    for (int rank = first; rank < first + count; ++rank) {
      start_rank(file, command, variables(rank), rank);
    }
  }
  /// To be called after start().
  void pass_output_on() {
    for (rank_process& process : ranks_) {
      for (const stream which : {stream::out, stream::err}) pass_next_output_on(process, which);
    }
  }

  [[nodiscard]] std::vector<rank_process>& ranks() noexcept { return ranks_; }
  [[nodiscard]] const std::vector<rank_process>& ranks() const noexcept { return ranks_; }

  [[nodiscard]] noticed notice_ends() {
    noticed news;
    for (rank_process& process : ranks_) {
      exit_status status;
      if (process.ended || !has_ended(process.pid, status)) continue;
      process.ended = status;
      process.end_time = clock::now();
      if (!news.failed && end_of(process).failed_by_itself()) {
        news.failed = ended_rank{process.rank, status};
      }
      news.saved |= status.has_saved();
      news.ended.push_back({process.rank, status});
    }
    return news;
  }
  [[nodiscard]] bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const auto& process) { return process.ended; });
  }

  /// Signals the process groups of all ranks that still run. One that has ended, noticed or not,
  /// does not count as signalled.
  void signal(int number) {
    for (rank_process& process : ranks_) {
      exit_status unnoticed;
      if (process.ended || has_ended(process.pid, unnoticed)) continue;
      if (number != SIGUSR1 && number != SIGUSR2 && number != SIGSTOP && number != SIGCONT) {
        process.was_signalled = true;
      }
      ::kill(-process.pid, number);
    }
  }
  /// After a failure: the others have a moment to report it by themselves, then one to clean up,
  /// together less than a second.
  void end_the_others() {
    after(report_grace, terminate_timer_, [this] {
      signal(SIGTERM);
      signal(SIGCONT);  // a stopped process receives SIGTERM only then
    });
    kill_after(report_grace + failure_grace);
  }
  void kill_after(clock::duration time) {
    after(time, kill_timer_, [this] { signal(SIGKILL); });
  }
  /// Kills what is left of the ranks' process groups, and reaps the ranks.
  void kill_and_reap() {
    for (const rank_process& process : ranks_) {
      ::kill(-process.pid, SIGKILL);
      reap(process.pid);
    }
    disarm(terminate_timer_);
    disarm(kill_timer_);
  }

  /// Calls `done` once all that the ranks, which have ended, have written is passed on, and nothing
  /// that they have started is left. To be called once.
  void drain(leftovers words, std::function<void()> done) {
    drained_ = std::move(done);
    const auto patience = words == leftovers::told ? drain_patience : drain_patience.zero();
    drain_limit_ = deadline::after(patience);
    await_orphans(words);
  }

  /// Of a rank that has ended.
  [[nodiscard]] rank_end end_of(const rank_process& process) const {
    return {process.rank,
            process.pid,
            *process.ended,
            process.was_signalled,
            std::chrono::duration<double>(process.end_time - start_).count(),
            !inherits_ && process.last_lines.empty(),
            failures_.record_of_rank(process.rank),
            process.error_log,
            {process.last_lines.begin(), process.last_lines.end()},
            process.console_lines && around_.output.lines() - *process.console_lines <= lines_kept};
  }

  /// 0, 75 or another one, by all ranks, which have ended; where ranks go on after losses, by the
  /// best.
  [[nodiscard]] int code(on_loss losses) const;
  /// All ranks of this node, which is called `node`, have ended. Removes their flight recorders
  /// where all have succeeded.
  [[nodiscard]] node_report report(const std::string& node, const std::vector<std::string>& command,
                                   const environment& env);

 private:
  static constexpr std::chrono::milliseconds report_grace{250};
  static constexpr std::chrono::milliseconds failure_grace{500};
  static constexpr std::chrono::milliseconds drain_patience{1'000};
  static constexpr std::chrono::milliseconds drain_pause{2};

  void start_rank(const std::string& file, const std::vector<std::string>& command,
                  const environment& env, int rank) {
    rank_process process(rank, around_.io);
    if (output_.prefix) process.prefix = output_.prefix(rank);
    const descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    child_options streams{.signal_mask = around_.signal_mask, .dies_with_parent = true};
    // A rank's process group is in the background: reading from the terminal would stop it.
    if (rank > 0 || ::isatty(STDIN_FILENO) == 1) streams.in = nothing.get();
    if (output_.shows) process.shown = output_.shows(rank);
    const descriptor out = open_output(process, stream::out);
    const descriptor err = open_output(process, stream::err);
    if (out.valid()) streams.out = out.get();
    if (err.valid()) streams.err = err.get();
    process.pid = start_child(file, command, env, streams);
    around_.guard.add(process.pid);
    around_.left_behind.except(process.pid);
    ranks_.push_back(std::move(process));
  }

  /// What a rank writes one of its streams to; not valid where it inherits parxrun's.
  [[nodiscard]] descriptor open_output(rank_process& process, stream which) {
    if (inherits_) return {};
    const auto has = [&](const output_streams& streams) {
      return which == stream::out ? streams.out : streams.err;
    };
    if (!output_.log_stem || !has(output_.to_files)) return open_stream(process, which);
    const char* const ending = which == stream::out ? ".out" : ".err";
    const std::string path = output_.log_stem(process.rank) + ending;
    if (which == stream::err) process.error_log = path;
    descriptor log = create_log(path, output_.earlier);
    if (!has(output_.tee)) return log;
    process[which].copy = std::move(log);
    return open_stream(process, which);
  }

  /// Makes a pipe or terminal for a rank's output. Keeps the reader and returns the writer.
  [[nodiscard]] static descriptor open_stream(rank_process& process, stream which) {
    const bool terminal = process.rank == 0 && console::is_terminal(which);
    pipe_ends channel = terminal
                            ? make_terminal(which == stream::out ? STDOUT_FILENO : STDERR_FILENO,
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
      if (which == stream::err) process.has_failed = failures_.has_record(process.rank);
      read_output(process, which);
      pass_next_output_on(process, which);
    };
    // While the reader of parxrun's own output is slow, the ranks block because their pipes fill.
    const auto read_if_room = [this, &process, which, read](const boost::system::error_code&) {
      if (process[which].reader.is_open()) around_.output.queue(which).when_not_full(read);
    };
    process[which].reader.async_wait(boost::asio::posix::descriptor_base::wait_read, read_if_room);
  }

  /// Reads once and passes complete lines on. Closes the stream at its end.
  void read_output(rank_process& process, stream which);
  void pass_line_on(rank_process& process, stream which, std::string_view line);
  /// Shows the error that is kept back, unless another rank has printed the same one.
  void show_error(const rank_process& process);
  /// parx's own lines name their rank already: "[parx rank 1] error: ..." gets no second prefix,
  /// but where that of several nodes is known, the node.
  void show(const rank_process& process, stream which, std::string_view line);

  /// A script that starts its program in the background and does not wait for it ends the job by
  /// that. What ends by itself within a moment (a `tee` of the rank's output) is no matter.
  void await_orphans(leftovers words);
  void await_output();
  [[nodiscard]] bool output_closed() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const rank_process& process) { return process.output_closed(); });
  }
  /// Closes the streams, and passes on their last lines that have no line feed.
  void close_output();

  rank_surroundings& around_;
  const failure_folder& failures_;
  rank_output output_;
  bool inherits_ = false;  ///< the rank has parxrun's own output
  boost::asio::steady_timer terminate_timer_;
  boost::asio::steady_timer kill_timer_;
  boost::asio::steady_timer drain_timer_;
  deadline drain_limit_ = deadline::unset();
  std::function<void()> drained_;
  std::vector<rank_process> ranks_;
  clock::time_point start_{};
};

}  // namespace parx::detail
