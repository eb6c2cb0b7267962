// abort_reason: what a rank that an exception ends tells the others.
#pragma once

#include <exception>
#include <string>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

/// "rank 3: cannot open "train.csv"", with its causes, for process_group::abort. Call it in a catch
/// block.
[[nodiscard]] inline std::string abort_reason(int rank) {
  return formatted("rank {}: {}", rank, text_of(std::current_exception()));
}

}  // namespace parx
