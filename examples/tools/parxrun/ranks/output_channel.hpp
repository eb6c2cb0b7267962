// output_channel: the destinations of a rank's output: a pipe or a terminal that parxrun reads, or
// a log file.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::detail {

/// The two ends of a pipe or terminal.
struct output_channel {
  descriptor reader;
  descriptor writer;
};

[[nodiscard]] output_channel make_pipe();

/// A terminal for a rank, `columns_taken` narrower than the terminal `model`, so that the rank
/// draws its progress bar as it would without parxrun. Falls back to a pipe.
[[nodiscard]] output_channel make_terminal(int model, std::size_t columns_taken);

void make_log_folder(const std::string& path);

enum class earlier_log { replace, keep };

[[nodiscard]] descriptor create_log(const std::string& path, earlier_log earlier);

/// The last lines of a file, at most `count`.
[[nodiscard]] std::deque<std::string> tail_of(const std::string& path, std::size_t count);

}  // namespace parx::detail
