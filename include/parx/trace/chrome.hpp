// Starts the recording of spans, and writes it as a Chrome/Perfetto trace.
//
//   PARX_TRACE=trace.json      record from the start, write when the process exits; rank 3 of
//                              several writes trace.rank3.json, or put %r where the rank belongs
//   PARX_TRACE_EVENTS=1000000  events kept for each thread (65536), about 200 bytes each
//
// A file appears whole or not at all (temporary name, then rename). A missing folder is reported at
// the start, a failure to write is one warning in the log. Safe from any thread; no thread of its
// own.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/env.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/log.hpp>
#include <parx/core/own_process.hpp>
#include <parx/core/temporary_file.hpp>
#include <parx/trace/detail/chrome_json.hpp>
#include <parx/trace/detail/recorder.hpp>

namespace parx::inline PARX_ABI::trace {

struct trace_options {
  std::string path = {};                  ///< "trace.json"; see trace_file() for the rank in it
  std::size_t events_per_thread = 65536;  ///< beyond it, the oldest are dropped
};

/// The file of one rank: "%r" in `path` is replaced by the rank (0 while it is unknown); without
/// "%r", "out/trace.json" becomes "out/trace.rank3.json" unless the rank is unknown (-1) or the
/// world size is 1.
[[nodiscard, gnu::cold]] inline std::string trace_file(std::string_view path, int rank,
                                                       int world_size) {
  std::string file(path);
  const std::string number = std::to_string(rank < 0 ? 0 : rank);
  bool replaced = false;
  for (auto at = file.find("%r"); at != std::string::npos; at = file.find("%r", at)) {
    file.replace(at, 2, number);
    replaced = true;
  }
  if (replaced || rank < 0 || world_size == 1) return file;
  const auto slash = file.find_last_of('/');
  const auto name = slash == std::string::npos ? 0 : slash + 1;
  const auto dot = file.find_last_of('.');
  const auto end = dot == std::string::npos || dot <= name ? file.size() : dot;
  return file.insert(end, ".rank" + number);
}

namespace detail {

[[nodiscard]] inline process_description describe_process() {
  using std::chrono::duration;
  using std::chrono::steady_clock;
  using std::chrono::system_clock;
  const std::string host = parx::detail::host_name();
  const int rank = logger::instance().rank();
  const duration<double, std::micro> offset =
      system_clock::now().time_since_epoch() - steady_clock::now().time_since_epoch();
  return {.pid = rank >= 0 ? rank : static_cast<int>(::getpid()),
          .name = rank >= 0 ? formatted("rank {} ({})", rank, host)
                            : formatted("pid {} ({})", ::getpid(), host),
          .clock_offset_us = offset.count()};
}

[[noreturn]] inline void throw_unwritable(const std::string& path, int saved_errno) {
  throw_error(errc::io,
              "the trace {} could not be written: {}. Give PARX_TRACE a file in a folder "
              "that exists and may be written to.",
              path, errno_text(saved_errno));
}

/// Throws errc::io unless files can be made in the folder of `path`: now, not after hours of
/// training.
[[gnu::cold]] inline void require_folder(const std::string& path) {
  const auto slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (folder.find("%r") != std::string::npos) return;  // the rank is not known yet
  if (::access(folder.c_str(), W_OK | X_OK) != 0) throw_unwritable(path, errno);
}

/// Throws errc::io when the file cannot be written in full; then nothing is left behind.
[[gnu::cold]] inline void write_chrome_file(const std::string& path,
                                            const process_description& process, const ring* rings) {
  parx::detail::temporary_file made = parx::detail::make_temporary(path);
  if (!made.file.valid()) throw_unwritable(path, made.reason);
  const auto fail = [&](int saved_errno) {
    ::unlink(made.name.c_str());
    throw_unwritable(path, saved_errno);
  };

  std::uint64_t dropped = 0;
  for (const ring* each = rings; each != nullptr; each = each->next_ring) {
    dropped += each->dropped();
  }
  std::string text;
  append_header(text, process, dropped);
  const auto put = [&] {
    if (const int reason = parx::detail::write_all(made.file.get(), text).reason; reason != 0) {
      fail(reason);
    }
    text.clear();
  };
  for (const ring* each = rings; each != nullptr; each = each->next_ring) {
    append_thread(text, each->contents(), process.pid);
    put();
  }
  text += json_footer;
  put();
  if (::close(made.file.release()) != 0) fail(errno);
  if (std::rename(made.name.c_str(), path.c_str()) != 0) fail(errno);
}

/// Which file the process writes. Never destroyed, because it is used while the process exits.
class chrome_output {
 public:
  [[nodiscard]] static chrome_output& instance() {
    static chrome_output& the_output = *new chrome_output;
    return the_output;
  }

  [[gnu::cold]] void start(trace_options options) {
    const std::lock_guard lock(mutex_);
    recorder::instance().clear(options.events_per_thread);
    path_ = std::move(options.path);
    process_ = {};
    if (!std::exchange(exit_hook_, true)) {
      // The hook logs, so the logger must be made first: statics made later are destroyed earlier.
      [[maybe_unused]] const auto& made_first = logger::instance();
      std::atexit([] {
        // A forked process has a copy of the events, which its parent writes.
        const bool is_here = instance().process_.is_this();
        if (is_here && !recorder::instance().empty()) instance().flush();
      });
    }
    recording.store(true, std::memory_order_relaxed);
  }

  bool flush() noexcept try {
    const std::lock_guard lock(mutex_);
    if (path_.empty()) return false;
    const auto& log = logger::instance();
    write_chrome_file(trace_file(path_, log.rank(), log.world_size()), describe_process(),
                      recorder::instance().rings());
    return true;
  } catch (const std::exception& failure) {
    try {
      log(log_level::warn, "{}", failure.what());
    } catch (...) {  // the program goes on, with neither a trace nor a warning
    }
    return false;
  }

 private:
  parx::detail::own_process process_;  ///< the one that records
  std::mutex mutex_;
  std::string path_;
  bool exit_hook_ = false;
};

}  // namespace detail

/// Starts to record, and writes the file when the process exits. Events of an earlier start are
/// forgotten. Throws usage_error when the path is empty or no event could be kept, errc::io when
/// the file's folder does not exist or may not be written to.
[[gnu::cold]] inline void start(trace_options options) {
  require(!options.path.empty(), "trace::start needs the name of the file to write");
  require(options.events_per_thread > 0, "trace::start: events_per_thread must be at least 1");
  detail::require_folder(options.path);
  detail::chrome_output::instance().start(std::move(options));
}

/// Stops recording; the recorded events will still be written, with the spans that are open now.
inline void stop() noexcept { detail::recording.store(false, std::memory_order_relaxed); }

/// Writes the file with everything recorded so far and goes on recording. Blocks for the disk.
/// False when nothing was started or the file could not be written, which is logged.
inline bool flush() noexcept { return detail::chrome_output::instance().flush(); }

namespace detail {

/// A wrong variable is a warning here: no caller could catch an exception before main().
[[gnu::cold]] inline bool start_from_environment() noexcept try {
  const char* path = std::getenv("PARX_TRACE");
  if (path == nullptr || *path == '\0') return false;
  trace_options options{.path = path};
  if (const auto events = env_number<std::size_t>(process_environment(), "PARX_TRACE_EVENTS")) {
    options.events_per_thread = *events;
  }
  start(std::move(options));
  return true;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "[parx] warning: there will be no trace: %s\n", failure.what());
  return false;
}

inline const bool started_by_environment = start_from_environment();

}  // namespace detail

}  // namespace parx::trace
