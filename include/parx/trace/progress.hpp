// progress: how far a long loop has come, on standard error.
//
// A terminal gets a live bar, redrawn in place at most ten times a second; a file or a pipe gets a
// plain line every few seconds. PARX_PROGRESS_BAR=0 asks for plain lines on a terminal too. Log
// lines of any thread go above the bar. One thread at a time may call the members. Between two
// draws update() only reads the clock and copies the note.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <parx/core/env.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/log.hpp>
#include <parx/trace/detail/progress_text.hpp>

namespace parx::inline PARX_ABI {

struct progress_options {
  std::size_t total = 0;  ///< steps in all; 0 where unknown: then without bar and time left
  bool enabled = true;    ///< false makes every call a no-op: `.enabled = world.rank() == 0`
  std::string label = {};   ///< in front of the bar
  std::size_t initial = 0;  ///< steps done before this run (resumed); they do not count in the rate
  std::chrono::milliseconds plain_interval{5000};  ///< between two plain lines
  int descriptor = STDERR_FILENO;                  ///< where bar and plain lines go; not owned
};

class progress final : private status_line {
 public:
  /// Starts the clock and, on a terminal, draws the empty bar. Throws usage_error when
  /// PARX_PROGRESS_BAR is not a switch.
  explicit progress(progress_options options) : options_(std::move(options)) {
    if (!options_.enabled) return;
    detail::assign_one_line(label_, options_.label);
    live_ = draws_bar(options_.descriptor);
    done_ = options_.initial;
    last_draw_ = start_;
    if (!live_) return;
    draw(start_);
    logger::instance().add_status_line(*this);
  }
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  /// Finishes, unless an exception unwinds the stack: then the bar stays as it is, and the message
  /// that follows starts a new line.
  ~progress() {
    try {
      if (std::uncaught_exceptions() > exceptions_) {
        leave_bar();
      } else {
        finish();
      }
    } catch (...) {  // out of memory for one line of text is no reason to end a training
    }
    if (live_) logger::instance().remove_status_line(*this);
  }

  /// `done` steps of the total are done. `note` is shown after the numbers; an empty one keeps the
  /// previous note. Does nothing after finish().
  void update(std::size_t done, std::string_view note = {}) {
    if (!options_.enabled || finished_) return;
    const bool completes = live_ && done == options_.total && done_ != done;
    done_ = done;
    if (!note.empty()) detail::assign_one_line(note_, note);
    const auto now = clock::now();
    if (completes || now - last_draw_ >= interval()) draw(now);
  }

  /// Writes `line` and a newline to standard output, above the bar.
  void print(std::string_view line) {
    if (!options_.enabled) return;
    make_way_for([line] {
      std::fwrite(line.data(), 1, line.size(), stdout);
      std::fputc('\n', stdout);
      std::fflush(stdout);
    });
    if (live_ && !finished_) draw(clock::now());
  }

  /// Draws the final line. Calls after the first do nothing.
  void finish() {
    if (!options_.enabled || finished_) return;
    draw(clock::now());
    leave_bar();
    finished_ = true;
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds redraw_interval{100};
  static constexpr std::string_view erase_line = "\r\x1b[K";

  [[nodiscard]] static bool draws_bar(int descriptor) {
    const auto env = process_environment();
    const bool wanted = env_flag(env, "PARX_PROGRESS_BAR").value_or(true);
    return wanted && env_string(env, "TERM") != "dumb" && ::isatty(descriptor) != 0;
  }

  [[nodiscard]] std::chrono::milliseconds interval() const noexcept {
    return live_ ? redraw_interval : options_.plain_interval;
  }

  /// Read at every draw, because a terminal can be resized. The last column stays free: a terminal
  /// that wraps as soon as the line is full would scroll at each redraw.
  [[nodiscard]] std::size_t bar_width() const noexcept {
    winsize size{};
    const bool known = ::ioctl(options_.descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return known ? size.ws_col - 1u : 79u;
  }

  void make_way_for(const std::function<void()>& write_line) override {
    const std::lock_guard lock(terminal_);
    if (!bar_.empty()) put(erase_line);
    write_line();
    put(bar_);
  }

  void draw(clock::time_point now) {
    const detail::progress_state state{
        .done = done_,
        .total = options_.total,
        .initial = options_.initial,
        .seconds = std::chrono::duration<double>(now - start_).count(),
        .label = label_,
        .note = note_,
    };
    if (live_) {
      auto bar = '\r' + progress_text(state, detail::progress_look::bar, bar_width()) + "\x1b[K";
      const std::lock_guard lock(terminal_);
      bar_ = std::move(bar);
      put(bar_);
    } else {
      put(progress_text(state, detail::progress_look::plain, detail::unlimited_columns) + '\n');
    }
    last_draw_ = now;
  }

  /// Ends the bar's line: what is printed next starts a new one.
  void leave_bar() noexcept {
    const std::lock_guard lock(terminal_);
    if (!bar_.empty()) put("\n");
    bar_.clear();
  }

  /// One write a line, so that lines of other processes do not mix in. A failure is ignored: the
  /// loop matters more than its bar.
  void put(std::string_view text) noexcept {
    (void)detail::write_all(options_.descriptor, text);
  }

  progress_options options_;
  bool live_ = false;
  bool finished_ = false;
  int exceptions_ = std::uncaught_exceptions();
  std::size_t done_ = 0;
  std::string label_;
  std::string note_;
  clock::time_point start_ = clock::now();
  clock::time_point last_draw_ = start_;
  std::mutex terminal_;  // held while the bar is drawn or makes way for a line
  std::string bar_;      // as drawn on the terminal; empty while there is none
};

}  // namespace parx
