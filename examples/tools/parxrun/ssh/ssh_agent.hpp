// ssh_agent: one host of --hosts in the parxrun that starts it: the ssh process, its output, and
// what is sent to the parxrun there. One thread, that of its io_context; destroyed only after
// is_over(), or after close() and one more turn of the context.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/write.hpp>

#include "tools/common/child_process.hpp"
#include "tools/parxrun/ranks/console.hpp"
#include "tools/parxrun/ranks/line_cutter.hpp"
#include "tools/parxrun/ranks/output_channel.hpp"
#include "tools/parxrun/ssh/ssh_start.hpp"
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

class ssh_agent {
 public:
  /// Its lines go to `output`. `on_over` is called once, when ssh has ended and all its output has
  /// been passed on.
  ssh_agent(boost::asio::io_context& io, console& output, std::string host,
            std::function<void(const ssh_agent&)> on_over)
      : output_(output),
        host_(std::move(host)),
        on_over_(std::move(on_over)),
        input_(io),
        readers_{boost::asio::posix::stream_descriptor(io),
                 boost::asio::posix::stream_descriptor(io)} {}
  ssh_agent(const ssh_agent&) = delete;
  ssh_agent& operator=(const ssh_agent&) = delete;

  /// Starts `command`, found at `file`, and sends it the order. Throws as start_child() does.
  void start(const std::string& file, const std::vector<std::string>& command,
             const environment& env, const sigset_t& mask, const std::string& order) {
    int ends[2];  // A socket, because writing to a pipe that nobody reads raises SIGPIPE.
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw_error(errc::io, "cannot make a socket: {}", errno_text(errno));
    }
    const descriptor theirs(ends[1]);
    input_.assign(boost::asio::local::stream_protocol(), ends[0]);
    pipe_ends out = make_pipe();
    pipe_ends err = make_pipe();
    pid_ = start_child(file, command, env,
                       {.signal_mask = mask,
                        .in = theirs.get(),
                        .out = out.writer.get(),
                        .err = err.writer.get(),
                        .dies_with_parent = true});
    readers_[0].assign(out.reader.release());
    readers_[1].assign(err.reader.release());
    send(order);
    read_next(stream::out);
    read_next(stream::err);
  }

  /// As if the parxrun there had received the signal itself.
  void signal(int number) { send(formatted("signal {}", number)); }
  /// Says that there is nothing more to come.
  void close_input() {
    boost::system::error_code ignored;
    input_.close(ignored);
  }
  void kill() {
    if (pid_ > 0 && !ended_) ::kill(-pid_, SIGKILL);
  }
  void close() {
    kill();
    close_input();
    for (auto& each : readers_) each.close();
    if (pid_ > 0) reap(pid_);
    pid_ = 0;
  }

  /// To be called when a child has ended.
  void notice_end() {
    exit_status status;
    if (ended_ || pid_ == 0 || !has_ended(pid_, status)) return;
    ended_ = status;
    close_input();  // for what it may have left behind
    if (is_over()) on_over_(*this);
  }

  [[nodiscard]] const std::string& host() const noexcept { return host_; }
  /// Whether the parxrun there has read its order.
  [[nodiscard]] bool has_greeted() const noexcept { return has_greeted_; }
  [[nodiscard]] const std::optional<exit_status>& ended() const noexcept { return ended_; }
  [[nodiscard]] bool is_over() const {
    return ended_ && !readers_[0].is_open() && !readers_[1].is_open();
  }
  /// What it has written to standard error before the parxrun there has read its order.
  [[nodiscard]] const std::vector<std::string>& first_errors() const noexcept {
    return first_errors_;
  }

 private:
  void send(const std::string& line) {
    if (!input_.is_open()) return;
    waiting_ += line + "\n";
    if (sending_.empty()) write();
  }
  void write() {
    sending_ = std::exchange(waiting_, {});
    boost::asio::async_write(input_, boost::asio::buffer(sending_),
                             [this](const auto& failed, auto) {
                               sending_.clear();
                               if (failed) waiting_.clear();  // ssh's end says why
                               else if (!waiting_.empty()) write();
                             });
  }

  void read_next(stream which) {
    const auto number = static_cast<std::size_t>(which);
    readers_[number].async_read_some(
        boost::asio::buffer(buffers_[number]), [this, which, number](const auto& failed, auto got) {
          if (failed == boost::asio::error::operation_aborted) return;
          if (failed) {
            if (const std::string rest(lines_[number].partial()); !rest.empty()) take(which, rest);
            readers_[number].close();
            if (is_over()) on_over_(*this);
            return;
          }
          lines_[number].feed({buffers_[number].data(), got},
                              [this, which](std::string_view line) { take(which, line); });
          // While the reader of parxrun's output is slow, the ranks there wait.
          output_.queue(which).when_not_full([this, which, number] {
            if (readers_[number].is_open()) read_next(which);
          });
        });
  }
  void take(stream which, std::string_view line) {
    if (has_greeted_) return output_.line(which, {}, line);
    if (which == stream::err) first_errors_.emplace_back(line);
    if (which == stream::out && line == agent_greeting) {
      has_greeted_ = true;
      for (const std::string& each : first_errors_) output_.line(stream::err, {}, each);
    }
  }

  console& output_;
  const std::string host_;
  const std::function<void(const ssh_agent&)> on_over_;
  pid_t pid_ = 0;
  std::optional<exit_status> ended_;
  bool has_greeted_ = false;
  std::vector<std::string> first_errors_;
  boost::asio::local::stream_protocol::socket input_;
  std::string waiting_;
  std::string sending_;
  std::array<boost::asio::posix::stream_descriptor, 2> readers_;
  std::array<std::array<char, 1 << 14>, 2> buffers_{};
  std::array<line_cutter, 2> lines_;
};

}  // namespace parx::detail
