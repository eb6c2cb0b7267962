// abort_reason: the text that a rank which fails by an exception sends to the others.
#pragma once

#include <exception>
#include <string>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

/// For process_group::abort: the current exception with its causes, as in
/// "rank 3: cannot open "train.csv"". Call it in a catch block.
[[nodiscard]] inline std::string abort_reason(int rank) {
  return formatted("rank {}: {}", rank, text_of(std::current_exception()));
}

}  // namespace parx
