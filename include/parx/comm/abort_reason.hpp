// abort_reason: what a rank that an exception ends tells the others.
#pragma once

#include <exception>
#include <string>

#include <fmt/format.h>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// The text of the exception that is being handled, without a full stop at its end, so that it can
/// be quoted inside a sentence. Call it in a catch block.
[[nodiscard]] inline std::string text_of_current_exception() {
  std::string text;
  try {
    throw;
  } catch (const std::exception& failure) {
    text = failure.what();
  } catch (...) {
    text = "an exception that is not a std::exception";
  }
  while (text.ends_with('.')) text.pop_back();
  return text;
}

/// "rank 3: cannot open "train.csv"", for process_group::abort. Call it in a catch block.
[[nodiscard]] inline std::string abort_reason(int rank) {
  return fmt::format("rank {}: {}", rank, text_of_current_exception());
}

}  // namespace parx
