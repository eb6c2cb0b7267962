// usage: CPU time and memory of this process, as the kernel counts them.
//
// Two system calls and a small file, some microseconds: for every log line, not for every step.
// Ranks that are threads of one process all get that process's values. Source: getrusage(2),
// proc(5).
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstring>

#include <parx/core/abi.hpp>
#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::train {

/// What this process has used.
struct process_usage {
  double cpu_seconds = 0;     ///< of all threads, user and system
  double resident_bytes = 0;  ///< resident memory now; 0 if it is unknown
};

/// The figures of this moment; zeros where the system does not tell.
[[nodiscard]] inline process_usage usage_now() noexcept {
  process_usage now;
  rusage counted{};
  if (::getrusage(RUSAGE_SELF, &counted) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    now.cpu_seconds = seconds(counted.ru_utime) + seconds(counted.ru_stime);
  }
  // "size resident shared ...", in pages. ru_maxrss is the peak, not the current value.
  char text[128];
  const descriptor file(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  const ssize_t length = file.valid() ? ::read(file.get(), text, sizeof text) : 0;
  if (length > 0) {
    const char* const end = text + length;
    const auto* const space =
        static_cast<const char*>(std::memchr(text, ' ', static_cast<std::size_t>(length)));
    std::size_t pages = 0;
    if (space != nullptr && std::from_chars(space + 1, end, pages).ec == std::errc{}) {
      now.resident_bytes =
          static_cast<double>(pages) * static_cast<double>(::sysconf(_SC_PAGESIZE));
    }
  }
  return now;
}

}  // namespace parx::train
