// starter_words: what the parxrun that has started this one by ssh says (ssh_start.hpp): first the
// order; then signals, and by its end that it, or the connection, is gone. One thread, that of the
// io_context.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <parx/core/check.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/json.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/launch/detail/line_cutter.hpp>
#include <parx/launch/detail/ssh_start.hpp>

namespace parx::inline PARX_ABI::detail {

/// The order, where this parxrun was started with agent_flag alone: reads it from standard input,
/// goes to its folder and sets its variables; what follows can be read from its `input`. Throws
/// usage_error where the folder is missing or standard input is something else.
[[nodiscard]] inline std::optional<agent_order> take_order(const std::vector<std::string>& words) {
  if (words.size() != 2 || words[1] != agent_flag) return std::nullopt;
  std::string line;
  char byte = 0;
  // Not a byte more than the line.
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || byte == '\n') break;
    line.push_back(byte);
  }
  std::optional<agent_order> order;
  try {
    order = order_from_text(line);
  } catch (const json::error&) {
    throw_usage(
        "{} is for the parxrun that --hosts starts: another version, or no parxrun, has "
        "started this one",
        agent_flag);
  }
  for (const auto& [name, value] : order->variables) ::setenv(name.c_str(), value.c_str(), 1);
  require(::chdir(order->folder.c_str()) == 0,
          "the folder {} cannot be entered on host {} ({}): it must be there under the same name, "
          "on a shared file system or as a copy",
          order->folder, host_name(), errno_text(errno));
  // No rank reads what its agent is told.
  order->input = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.get(), STDIN_FILENO);
  return order;
}

class starter_words {
 public:
  /// Takes the descriptor over. `on_signal` gets the number of each signal that the starter passes
  /// on; `on_end` is called once.
  starter_words(boost::asio::io_context& io, int input, std::function<void(int)> on_signal,
                std::function<void()> on_end)
      : input_(io, input), on_signal_(std::move(on_signal)), on_end_(std::move(on_end)) {
    read_next();
  }

 private:
  void read_next() {
    input_.async_read_some(boost::asio::buffer(buffer_), [this](const auto& failed, auto got) {
      if (failed) return on_end_();
      lines_.feed({buffer_.data(), got}, [this](std::string_view line) {
        static constexpr std::string_view word = "signal ";
        if (!line.starts_with(word)) return;
        if (const auto number = parse_number<int>(line.substr(word.size()))) on_signal_(*number);
      });
      read_next();
    });
  }

  boost::asio::posix::stream_descriptor input_;
  std::function<void(int)> on_signal_;
  std::function<void()> on_end_;
  std::array<char, 256> buffer_{};
  line_cutter lines_;
};

}  // namespace parx::detail
