// rank_process: one rank of a local job in parxrun: its process, its output, how it ended.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/launch/detail/child_process.hpp>
#include <parx/launch/detail/console.hpp>
#include <parx/launch/detail/line_cutter.hpp>
#include <parx/launch/detail/repeated_errors.hpp>

namespace parx::inline PARX_ABI::detail {

/// One of a rank's two outputs, where parxrun passes it on.
struct rank_stream {
  explicit rank_stream(boost::asio::io_context& io) : reader(io) {}

  boost::asio::posix::stream_descriptor reader;
  line_cutter lines;
  descriptor copy = {};  ///< the log file that gets all of it as well
};

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
  bool was_signalled = false;          ///< by parxrun, before it ended
  bool has_failed = false;  ///< it has left a record: what it prints now may be its error
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

/// Shows the error that `errors` has kept, unless another rank has printed the same one.
inline void show_error(const rank_process& process, console& to, repeated_errors& errors) {
  for (const std::string& line : errors.end_of_error(process.rank, repeated_errors::clock::now()))
    to.line(stream::err, process.prefix, line);
}

inline void pass_line_on(rank_process& process, stream which, std::string_view line, console& to,
                         repeated_errors& errors) {
  if (which == stream::out) {
    if (process.shown) to.line(which, process.prefix, line);
    return;
  }
  if (process.shown) {
    if (process.has_failed) errors.take(process.rank, line);
    else to.line(which, process.prefix, line);
  }
  process.last_lines.emplace_back(line);
  if (process.last_lines.size() > lines_kept) process.last_lines.pop_front();
}

/// Reads once and passes complete lines on. Closes the stream at its end.
inline void pass_output_on(rank_process& process, stream which, console& to,
                           repeated_errors& errors) {
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

/// Passes on the last lines that have no line feed.
inline void flush_output(rank_process& process, console& to, repeated_errors& errors) {
  for (const stream which : {stream::out, stream::err}) {
    line_cutter& lines = process[which].lines;
    if (lines.live()) to.live(which, {}, {});
    if (!lines.partial().empty()) pass_line_on(process, which, lines.partial(), to, errors);
    lines.clear();
  }
  show_error(process, to, errors);
}

}  // namespace parx::detail
