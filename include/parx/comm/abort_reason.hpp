// abort_reason: the text that a rank which fails by an exception sends to the others.
#pragma once

#include <exception>
#include <string>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

/// For process_group::abort: the current exception with its causes, as in
/// "rank 3: cannot open "train.csv"". Call it in a catch block. The stack trace in which LibTorch's
/// exceptions end is left out: it is of the rank that prints it.
[[nodiscard]] inline std::string abort_reason(int rank) {
  const std::string text = text_of(std::current_exception());
  return formatted("rank {}: {}", rank, text.substr(0, text.find("\nException raised from ")));
}

}  // namespace parx
