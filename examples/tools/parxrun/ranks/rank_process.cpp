#include "tools/parxrun/ranks/rank_process.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <parx/core/file_limit.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/log.hpp>

namespace parx::inline PARX_ABI::detail {

namespace {

/// parx's own lines name their rank already: "[parx rank 1] error: ..." gets no second prefix, but
/// where that of several nodes is known, the node.
void show(const rank_process& process, stream which, std::string_view line, console& to) {
  const std::string own = formatted("{}rank {}", log_line_begin, process.rank);
  if (process.prefix.empty() || !line.starts_with(own) ||
      (line.size() > own.size() && line[own.size()] != ']' && line[own.size()] != ',')) {
    return to.line(which, process.prefix, line);
  }
  std::string_view node = process.prefix;  // "[rank 1 on n2] "
  node.remove_prefix(own.size() - log_line_begin.size() + 1);
  node.remove_suffix(2);
  to.line(which, own + std::string(node), line.substr(own.size()));
}

/// Shows the error that `errors` has kept, unless another rank has printed the same one.
void show_error(const rank_process& process, console& to, repeated_errors& errors) {
  for (const std::string& line : errors.end_of_error(process.rank, repeated_errors::clock::now()))
    show(process, stream::err, line, to);
}

void pass_line_on(rank_process& process, stream which, std::string_view line, console& to,
                  repeated_errors& errors) {
  if (which == stream::out) {
    if (process.shown) show(process, which, line, to);
    return;
  }
  if (process.shown) {
    process.console_lines = to.lines();
    if (process.has_failed) errors.take(process.rank, line);
    else show(process, which, line, to);
  }
  process.last_lines.emplace_back(line);
  if (process.last_lines.size() > lines_kept) process.last_lines.pop_front();
}

}  // namespace

void pass_output_on(rank_process& process, stream which, console& to, repeated_errors& errors) {
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
    pass_line_on(process, which, line, to, errors);
  });
  show_error(process, to, errors);  // a text is written, and so read, at once
  if (source.lines.live() && process.shown) {
    to.live(which, process.prefix, source.lines.partial());
  } else if (was_live) {
    to.live(which, {}, {});
  }
}

void flush_output(rank_process& process, console& to, repeated_errors& errors) {
  for (const stream which : {stream::out, stream::err}) {
    line_cutter& lines = process[which].lines;
    if (lines.live()) to.live(which, {}, {});
    if (!lines.partial().empty()) pass_line_on(process, which, lines.partial(), to, errors);
    lines.clear();
  }
  show_error(process, to, errors);
}

}  // namespace parx::detail
