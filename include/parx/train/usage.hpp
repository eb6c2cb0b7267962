// usage: CPU time and memory of this process, as the kernel counts them.
//
// Two system calls and a small file, some microseconds: for every log line, not for every step.
// Ranks that are threads of one process all get that process's values. Source: getrusage(2),
// proc(5).
#pragma once

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::train {

/// What this process has used.
struct process_usage {
  double cpu_seconds = 0;     ///< of all threads, user and system
  double resident_bytes = 0;  ///< resident memory now; 0 if it is unknown
};

/// The figures of this moment; zeros where the system does not tell.
[[nodiscard]] process_usage usage_now() noexcept;

}  // namespace parx::train

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/usage_impl.hpp>
#endif
