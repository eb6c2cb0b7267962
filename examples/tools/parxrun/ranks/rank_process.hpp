// rank_process: one rank of a local job in parxrun: its process, its output, how it ended.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "tools/parxrun/failures/repeated_errors.hpp"
#include "tools/common/child_process.hpp"
#include "tools/parxrun/ranks/console.hpp"
#include "tools/parxrun/ranks/line_cutter.hpp"
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>

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
  /// The console's lines before the last of them; empty where it is not shown.
  std::optional<std::size_t> console_lines = {};
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

/// Reads once and passes complete lines on. Closes the stream at its end.
void pass_output_on(rank_process& process, stream which, console& to, repeated_errors& errors);

/// Passes on the last lines that have no line feed.
void flush_output(rank_process& process, console& to, repeated_errors& errors);

}  // namespace parx::detail
