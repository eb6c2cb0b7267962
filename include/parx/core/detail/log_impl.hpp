// Definitions of log.hpp.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include <parx/core/log.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI {

[[gnu::cold]] PARX_INLINE void logger::write(log_level level, std::string_view text,
                                             std::string_view tag) {
  static constexpr std::string_view names[] = {log_line_error,
                                               "] warning: ", "] info: ", "] debug: "};
  const int known = rank();
  const std::string who =
      known >= 0 ? formatted("rank {}", known) : formatted("pid {}", ::getpid());
  const std::string line =
      formatted("{}{}{}{}{}\n", log_line_begin, who, tag, names[static_cast<int>(level)],
                printable(text, line_breaks::indent));
  const std::lock_guard lock(mutex_);
  const auto write_line = [&] {
    if (sink_) {
      sink_(level, line);
    } else {
      // One write, so that lines of several ranks on one terminal do not mix.
      [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
    }
  };
  if (status_line_ != nullptr) {
    status_line_->make_way_for(write_line);
  } else {
    write_line();
  }
}

[[gnu::cold]] PARX_INLINE void logger::write(log_level level, const char* text,
                                             fmt::format_args args) noexcept {
  try {
    write(level, fmt::vformat(text, args));
  } catch (...) {
    std::fputs(text, stderr);
    std::fputs(" (there is no memory to say more)\n", stderr);
  }
}

[[gnu::cold]] PARX_INLINE logger::logger() {
  const char* text = std::getenv("PARX_LOG_LEVEL");
  const std::string_view wanted = text != nullptr ? text : "";
  if (wanted == "error") {
    level_ = log_level::error;
  } else if (wanted == "info") {
    level_ = log_level::info;
  } else if (wanted == "debug") {
    level_ = log_level::debug;
  } else if (!wanted.empty() && wanted != "warn") {
    write(log_level::warn,
          formatted("PARX_LOG_LEVEL=\"{}\" is none of error, warn, info, debug; using warn",
                    printable(wanted)));
  }
}

}  // namespace parx
