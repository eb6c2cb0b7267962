// console: parxrun's own standard output and error, to which the lines of all ranks are written.
//
// Writing does not block: text is queued until there is room, so that parxrun still handles signals
// while its reader (a pager) has stopped reading. A line that a rank redraws in place (a progress
// bar) stays the last one on the terminal while other lines scroll above it.
#pragma once

#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::detail {

/// Text queued for a descriptor, which the queue does not own.
class output_queue {
 public:
  output_queue(boost::asio::io_context& io, int number) : number_(number), room_(io) {
    // Asio sets O_NONBLOCK on descriptors that it waits for, which would affect all processes that
    // share this terminal or pipe. So it waits for an epoll set, which is readable when there is
    // room.
    descriptor set(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event room{};
    room.events = EPOLLOUT;
    // A file cannot be added to an epoll set (EPERM): it always has room.
    if (::epoll_ctl(set.get(), EPOLL_CTL_ADD, number, &room) == 0) room_.assign(set.release());
  }

  void add(std::string_view text) {
    if (!broken_) waiting_ += text;
    write_when_there_is_room();
  }
  [[nodiscard]] bool empty() const noexcept { return waiting_.size() == sent_; }

  /// Calls `next` as soon as the queue is not full: at once or after a write. Slows the producers
  /// down while the reader of the console is slow.
  void when_not_full(std::function<void()> next) {
    held_back_.push_back(std::move(next));
    resume_producers();
  }

 private:
  [[nodiscard]] bool full() const noexcept { return waiting_.size() - sent_ > (1U << 18); }

  void resume_producers() {
    while (!full() && !held_back_.empty()) {
      const auto next = std::move(held_back_.front());
      held_back_.pop_front();
      next();
    }
  }

  void write_when_there_is_room() {
    if (is_waiting_ || empty()) return;
    is_waiting_ = true;
    const auto write = [this](const boost::system::error_code& = {}) {
      is_waiting_ = false;
      write_some();
      resume_producers();
      write_when_there_is_room();
    };
    if (room_.is_open()) {
      room_.async_wait(boost::asio::posix::descriptor_base::wait_read, write);
    } else {
      boost::asio::post(room_.get_executor(), write);
    }
  }

  /// Writes at most PIPE_BUF bytes, which a pipe with room takes without blocking.
  void write_some() {
    const auto size = std::min<std::size_t>(waiting_.size() - sent_, PIPE_BUF);
    const auto written = ::write(number_, waiting_.data() + sent_, size);
    if (written >= 0) {
      sent_ += static_cast<std::size_t>(written);
    } else if (errno != EINTR && errno != EAGAIN) {
      // The reader is gone; the agent learns it from SIGPIPE.
      broken_ = true;
      sent_ = waiting_.size();
    }
    if (sent_ == waiting_.size() || sent_ > (1U << 20)) {
      waiting_.erase(0, sent_);
      sent_ = 0;
    }
  }

  int number_;
  boost::asio::posix::stream_descriptor room_;  ///< readable when there is room; closed for a file
  std::string waiting_;
  std::size_t sent_ = 0;
  std::deque<std::function<void()>> held_back_;
  bool is_waiting_ = false;
  bool broken_ = false;
};

enum class stream : std::size_t { out, err };

class console {
 public:
  explicit console(boost::asio::io_context& io)
      : queues_{output_queue(io, STDOUT_FILENO), output_queue(io, STDERR_FILENO)} {
    struct stat out {};
    struct stat err {};
    same_terminal_ = is_terminal(stream::out) && is_terminal(stream::err) &&
                     ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &err) == 0 &&
                     out.st_rdev == err.st_rdev;
  }

  [[nodiscard]] static bool is_terminal(stream which) noexcept {
    return ::isatty(which == stream::out ? STDOUT_FILENO : STDERR_FILENO) == 1;
  }

  /// Writes a line, given without its line feed.
  void line(stream which, std::string_view prefix, std::string_view text) {
    ++lines_;
    erase_live();
    queue(which).add(std::string(prefix) + std::string(text) + "\n");
    draw_live();
  }
  /// How many there were.
  [[nodiscard]] std::size_t lines() const noexcept { return lines_; }

  /// Sets the line that is redrawn in place on a terminal; empty text when it is finished.
  void live(stream which, std::string_view prefix, std::string_view text) {
    erase_live();
    live_.clear();
    if (!text.empty()) live_.append(prefix).append(text);
    live_stream_ = which;
    draw_live();
  }

  [[nodiscard]] output_queue& queue(stream which) noexcept {
    // With two queues the lines on one terminal would be out of order.
    return queues_[same_terminal_ ? 0 : static_cast<std::size_t>(which)];
  }
  [[nodiscard]] bool empty() const noexcept { return queues_[0].empty() && queues_[1].empty(); }

 private:
  void erase_live() {
    if (!live_.empty()) queue(live_stream_).add("\r\x1b[K");
  }
  void draw_live() {
    if (!live_.empty()) queue(live_stream_).add(live_);
  }

  std::array<output_queue, 2> queues_;
  std::size_t lines_ = 0;
  std::string live_;
  stream live_stream_ = stream::out;
  bool same_terminal_ = false;
};

}  // namespace parx::detail
