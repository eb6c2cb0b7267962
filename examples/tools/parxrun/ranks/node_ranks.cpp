#include "tools/parxrun/ranks/node_ranks.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

#include "tools/parxrun/ranks/missing_instructions.hpp"
#include <parx/core/file_limit.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>
#include <parx/core/stopped.hpp>

namespace parx::inline PARX_ABI::detail {

int node_ranks::code(on_loss losses) const {
  int failed = 0;
  bool any_success = false;
  bool any_saved = false;
  for (const rank_process& each : ranks_) {
    any_success |= each.ended->success();
    any_saved |= each.ended->has_saved();
    if (failed == 0 && !each.ended->has_saved()) failed = each.ended->shell_code();
  }
  const bool goes_on = losses == on_loss::go_on;
  if (goes_on && any_success) return 0;
  if (failed != 0 && !(goes_on && any_saved)) return failed;
  return any_saved ? stopped_exit_code : 0;
}

node_report node_ranks::report(const std::string& node, const std::vector<std::string>& command,
                               const environment& env) {
  node_report result{.node = node};
  bool all_succeeded = true;
  for (rank_process& each : ranks_) {
    if (!each.error_log.empty()) each.last_lines = tail_of(each.error_log, lines_kept);
    rank_end end = end_of(each);
    all_succeeded &= end.status.success();
    if (end.failed_by_itself() && result.reason.empty()) {
      result.reason = missing_instructions(end.status, command, env);
    }
    result.ranks.push_back(std::move(end));
  }
  result.recorder = failures_.recordings();
  if (all_succeeded) failures_.remove_after_success();
  return result;
}

void node_ranks::show(const rank_process& process, stream which, std::string_view line) {
  const std::string own = formatted("{}rank {}", log_line_begin, process.rank);
  if (process.prefix.empty() || !line.starts_with(own) ||
      (line.size() > own.size() && line[own.size()] != ']' && line[own.size()] != ',')) {
    return around_.output.line(which, process.prefix, line);
  }
  std::string_view node = process.prefix;  // "[rank 1 on n2] "
  node.remove_prefix(own.size() - log_line_begin.size() + 1);
  node.remove_suffix(2);
  around_.output.line(which, own + std::string(node), line.substr(own.size()));
}

void node_ranks::show_error(const rank_process& process) {
  const auto now = repeated_errors::clock::now();
  for (const std::string& line : around_.errors.end_of_error(process.rank, now)) {
    show(process, stream::err, line);
  }
}

void node_ranks::pass_line_on(rank_process& process, stream which, std::string_view line) {
  if (which == stream::out) {
    if (process.shown) show(process, which, line);
    return;
  }
  if (process.shown) {
    process.console_lines = around_.output.lines();
    if (process.has_failed) around_.errors.take(process.rank, line);
    else show(process, which, line);
  }
  process.last_lines.emplace_back(line);
  if (process.last_lines.size() > lines_kept) process.last_lines.pop_front();
}

void node_ranks::read_output(rank_process& process, stream which) {
  console& to = around_.output;
  rank_stream& source = process[which];
  char buffer[1 << 16];
  boost::system::error_code failed;
  const std::size_t got = source.reader.read_some(boost::asio::buffer(buffer), failed);
  if (failed == boost::asio::error::would_block) return;
  // When the writer is gone, a pipe reports end of file and a terminal EIO.
  if (failed) return source.reader.close();
  // A full disk takes nothing from what is shown.
  if (source.copy.valid()) {
    static_cast<void>(write_all(source.copy.get(), std::string_view(buffer, got)));
  }
  const bool was_live = source.lines.live();
  source.lines.feed({buffer, got}, [&](std::string_view line) {
    if (was_live) to.live(which, {}, {});
    pass_line_on(process, which, line);
  });
  show_error(process);  // a text is written, and so read, at once
  if (source.lines.live() && process.shown) {
    to.live(which, process.prefix, source.lines.partial());
  } else if (was_live) {
    to.live(which, {}, {});
  }
}

void node_ranks::close_output() {
  for (rank_process& process : ranks_) {
    for (const stream which : {stream::out, stream::err}) {
      process[which].reader.close();
      line_cutter& lines = process[which].lines;
      if (lines.live()) around_.output.live(which, {}, {});
      if (!lines.partial().empty()) pass_line_on(process, which, lines.partial());
      lines.clear();
    }
    show_error(process);
  }
}

void node_ranks::await_orphans(leftovers words) {
  const std::vector<pid_t> left = around_.left_behind.left();
  if (!left.empty() && !drain_limit_.passed()) {
    return after(drain_pause, drain_timer_, [this, words] { await_orphans(words); });
  }
  if (!left.empty() && words == leftovers::told) {
    around_.output.queue(stream::err).add(orphans_text(left));
  }
  kill_and_reap();
  around_.left_behind.kill();
  // A process of another user, which cannot be killed, may keep a pipe open forever.
  drain_limit_ = deadline::after(drain_patience);
  await_output();
}

void node_ranks::await_output() {
  // Output that waits for a slow reader is never dropped.
  const bool is_over = drain_limit_.passed() && around_.output.empty();
  if (!output_closed() && !is_over && !around_.gave_up_on_output) {
    return after(drain_pause, drain_timer_, [this] { await_output(); });
  }
  close_output();
  drained_();
}

}  // namespace parx::detail
