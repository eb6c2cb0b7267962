// output_channel: the destinations of a rank's output: a pipe or a terminal that parxrun reads, or
// a log file.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

#include "tools/common/child_process.hpp"
#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::detail {

/// A terminal for a rank, `columns_taken` narrower than the terminal `model`, so that the rank
/// draws its progress bar as it would without parxrun. Falls back to a pipe.
[[nodiscard]] pipe_ends make_terminal(int model, std::size_t columns_taken);

void make_log_folder(const std::string& path);

enum class earlier_log { replace, keep };

[[nodiscard]] descriptor create_log(const std::string& path, earlier_log earlier);

/// The last lines of a file, at most `count`.
[[nodiscard]] std::deque<std::string> tail_of(const std::string& path, std::size_t count);

}  // namespace parx::detail
