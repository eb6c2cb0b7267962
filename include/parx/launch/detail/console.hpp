// console: parxrun's own standard output and error, to which whole lines of all ranks go.
//
// Writing never blocks: text waits in a queue until poll() says that there is room, so that a
// reader who stopped (a pager) cannot keep parxrun from its signals. A line that a rank redraws in
// place (a progress bar) stays the last one of the terminal while other lines scroll above it.
#pragma once

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <string>
#include <string_view>

namespace parx::detail {

/// Text on its way to one descriptor that somebody else owns.
class output_queue {
 public:
  explicit output_queue(int number) : number_(number) {}

  void add(std::string_view text) {
    if (!broken_) waiting_ += text;
  }
  [[nodiscard]] bool empty() const noexcept { return waiting_.size() == sent_; }
  /// Whether the ranks should be made to wait.
  [[nodiscard]] bool full() const noexcept { return waiting_.size() - sent_ > (1U << 18); }
  [[nodiscard]] pollfd interest() const noexcept { return {empty() ? -1 : number_, POLLOUT, 0}; }

  /// Call when poll() found room. A pipe with room takes PIPE_BUF bytes without blocking.
  void write_some() {
    const auto size = std::min<std::size_t>(waiting_.size() - sent_, PIPE_BUF);
    const auto written = ::write(number_, waiting_.data() + sent_, size);
    if (written >= 0) {
      sent_ += static_cast<std::size_t>(written);
    } else if (errno != EINTR && errno != EAGAIN) {
      // Nobody reads any more; SIGPIPE, where there is one, says so to the owner of this queue.
      broken_ = true;
      sent_ = waiting_.size();
    }
    if (sent_ == waiting_.size() || sent_ > (1U << 20)) {
      waiting_.erase(0, sent_);
      sent_ = 0;
    }
  }

 private:
  int number_;
  std::string waiting_;
  std::size_t sent_ = 0;
  bool broken_ = false;
};

enum class stream : std::size_t { out, err };

class console {
 public:
  console() {
    struct stat out {};
    struct stat err {};
    same_terminal_ = is_terminal(stream::out) && is_terminal(stream::err) &&
                     ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &err) == 0 &&
                     out.st_rdev == err.st_rdev;
  }

  [[nodiscard]] static bool is_terminal(stream which) noexcept {
    return ::isatty(which == stream::out ? STDOUT_FILENO : STDERR_FILENO) == 1;
  }

  /// A whole line, without its line feed.
  void line(stream which, std::string_view prefix, std::string_view text) {
    erase_live();
    queue(which).add(std::string(prefix) + std::string(text) + "\n");
    draw_live();
  }

  /// The line that is being redrawn on a terminal; empty when it is finished.
  void live(stream which, std::string_view prefix, std::string_view text) {
    erase_live();
    live_.clear();
    if (!text.empty()) live_.append(prefix).append(text);
    live_stream_ = which;
    draw_live();
  }

  [[nodiscard]] output_queue& queue(stream which) noexcept {
    // Two queues to one terminal would be written out of order.
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

  std::array<output_queue, 2> queues_{output_queue(STDOUT_FILENO), output_queue(STDERR_FILENO)};
  std::string live_;
  stream live_stream_ = stream::out;
  bool same_terminal_ = false;
};

}  // namespace parx::detail
