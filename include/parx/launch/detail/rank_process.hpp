// One rank of a local job as parxrun sees it: its process, our ends of its output, how it ended.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/launch/detail/child_process.hpp>
#include <parx/launch/detail/console.hpp>
#include <parx/launch/detail/line_cutter.hpp>

namespace parx::detail {

/// One of a rank's two outputs, when parxrun passes it on.
struct rank_stream {
  descriptor reader;
  line_cutter lines;
};

struct rank_process {
  int rank = 0;
  pid_t pid = 0;
  std::string prefix;  ///< of its lines on the console
  rank_stream streams[2];
  std::string error_log;               ///< the file of its standard error, if it has one
  std::deque<std::string> last_lines;  ///< of its standard error, if parxrun passes it on
  bool was_told = false;               ///< parxrun signalled it before it ended
  std::optional<exit_status> ended;
  deadline::clock::time_point end_time{};

  [[nodiscard]] rank_stream& operator[](stream which) noexcept {
    return streams[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] bool output_closed() const noexcept {
    return !streams[0].reader.valid() && !streams[1].reader.valid();
  }
};

/// How many lines of a failed rank's standard error are shown again at the end.
inline constexpr std::size_t lines_kept = 10;

inline void pass_line_on(rank_process& process, stream which, std::string_view line, console& to) {
  to.line(which, process.prefix, line);
  if (which == stream::out) return;
  process.last_lines.emplace_back(line);
  if (process.last_lines.size() > lines_kept) process.last_lines.pop_front();
}

/// Reads what is there, once, and passes whole lines on. Closes the stream at its end.
inline void pass_output_on(rank_process& process, stream which, console& to) {
  rank_stream& source = process[which];
  char buffer[1 << 16];
  const auto got = ::read(source.reader.get(), buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  // A terminal whose other side is gone reports EIO, a pipe zero bytes.
  if (got <= 0) return source.reader.close();
  const bool was_live = source.lines.live();
  source.lines.feed({buffer, static_cast<std::size_t>(got)}, [&](std::string_view line) {
    if (was_live) to.live(which, {}, {});
    pass_line_on(process, which, line, to);
  });
  if (source.lines.live()) {
    to.live(which, process.prefix, source.lines.partial());
  } else if (was_live) {
    to.live(which, {}, {});
  }
}

/// Passes on what was left without a line feed.
inline void flush_output(rank_process& process, console& to) {
  for (const stream which : {stream::out, stream::err}) {
    line_cutter& lines = process[which].lines;
    if (lines.live()) to.live(which, {}, {});
    if (!lines.partial().empty()) pass_line_on(process, which, lines.partial(), to);
    lines.clear();
  }
}

}  // namespace parx::detail
