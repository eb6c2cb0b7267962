// print0: prints once for the whole job instead of once per rank.
#pragma once

#include <cstdio>
#include <utility>

#include <fmt/core.h>

#include <parx/comm/process_group.hpp>

namespace parx::inline PARX_ABI {

/// Local. On rank 0, formats to standard output and flushes; does nothing on other ranks.
template <typename... Args>
void print0(const process_group& group, fmt::format_string<Args...> text, Args&&... args) {
  if (group.rank() != 0) return;
  fmt::print(text, std::forward<Args>(args)...);
  std::fflush(stdout);
}

}  // namespace parx
