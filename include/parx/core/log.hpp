// Logging: one line at a time to standard error, with the rank in front.
//
// PARX_LOG_LEVEL (error, warn, info, debug; default warn) sets what is shown. The rank is known
// once init() has run; before that, lines carry the process id. Messages go through printable(), so
// that text from other processes cannot forge a line. Safe from any thread.
#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string_view>
#include <utility>

#include <parx/core/abi.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI {

enum class log_level { error, warn, info, debug };

/// What a line begins with, and what stands between its writer and an error: "[parx rank 3] error:
/// ". Programs that read logs look for these.
inline constexpr std::string_view log_line_begin = "[parx ";
inline constexpr std::string_view log_line_error = "] error: ";

/// A line that stays at the bottom of the terminal (a progress bar), with log lines above it.
class status_line {
 public:
  /// Erases itself, calls write_line and draws itself again. Called from any thread.
  virtual void make_way_for(const std::function<void()>& write_line) = 0;

 protected:
  ~status_line() = default;
};

/// The process's logger. Its sink can be replaced (tests, a program with a logger of its own).
class logger {
 public:
  using sink = std::function<void(log_level, std::string_view line)>;

  [[nodiscard]] static logger& instance() {
    static logger the_logger;
    return the_logger;
  }

  [[nodiscard]] bool shows(log_level level) const noexcept {
    return level <= level_.load(std::memory_order_relaxed);
  }
  void set_level(log_level level) noexcept { level_.store(level, std::memory_order_relaxed); }
  /// For log lines and for the names of trace files.
  void set_rank(int rank, int world_size = 0) noexcept {
    rank_.store(rank, std::memory_order_relaxed);
    world_size_.store(world_size, std::memory_order_relaxed);
  }
  /// -1 until it is known.
  [[nodiscard]] int rank() const noexcept { return rank_.load(std::memory_order_relaxed); }
  /// 0 until it is known.
  [[nodiscard]] int world_size() const noexcept {
    return world_size_.load(std::memory_order_relaxed);
  }
  void set_sink(sink new_sink) {
    const std::lock_guard lock(mutex_);
    sink_ = std::move(new_sink);
  }

  /// From now on log lines go above `line`, which must live until it is removed. It replaces an
  /// earlier one.
  void add_status_line(status_line& line) {
    const std::lock_guard lock(mutex_);
    status_line_ = &line;
  }
  /// Waits for a log line that is being written above it. Does nothing if another line has replaced
  /// it.
  void remove_status_line(const status_line& line) noexcept {
    const std::lock_guard lock(mutex_);
    if (status_line_ == &line) status_line_ = nullptr;
  }

  /// `tag` stands behind the writer, in the brackets.
  void write(log_level level, std::string_view text, std::string_view tag = {});
  /// The same of a format string. Where that fails, for want of memory, only `text` is written.
  void write(log_level level, const char* text, fmt::format_args args) noexcept;

 private:
  logger();

  std::atomic<log_level> level_{log_level::warn};
  std::atomic<int> rank_{-1};
  std::atomic<int> world_size_{0};
  std::mutex mutex_;
  sink sink_;
  status_line* status_line_ = nullptr;
};

/// Does not throw, so that what goes on after a failure may tell of it.
template <typename... Args>
void log(log_level level, counted_text<sizeof...(Args)> text, const Args&... args) noexcept {
  logger& to = logger::instance();
  if (!to.shows(level)) return;
  const fmt::basic_format_arg<fmt::format_context> list[] = {detail::format_argument(args)..., {}};
  to.write(level, text.get(), {list, sizeof...(Args)});
}

/// Logs on rank 0 only, or while the rank is unknown: for what every rank would say alike.
template <typename... Args>
void log0(log_level level, counted_text<sizeof...(Args)> text, const Args&... args) {
  if (logger::instance().rank() <= 0) log(level, text, args...);
}

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/log_impl.hpp>
#endif
