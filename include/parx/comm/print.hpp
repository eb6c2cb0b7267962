// print0: one line for the job instead of one a rank.
#pragma once

#include <cstdio>
#include <utility>

#include <fmt/core.h>

#include <parx/comm/process_group.hpp>

namespace parx::inline PARX_ABI {

/// Local. Formats to standard output on rank 0 and flushes; does nothing elsewhere.
template <typename... Args>
void print0(const process_group& group, fmt::format_string<Args...> text, Args&&... args) {
  if (group.rank() != 0) return;
  fmt::print(text, std::forward<Args>(args)...);
  std::fflush(stdout);
}

}  // namespace parx
