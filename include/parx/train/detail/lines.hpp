// The log lines of a training run, made from its state and the ranks' counts. Local, pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <parx/train/options.hpp>
#include <parx/train/record.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// A training line: the `loss` since the previous line, and `figures` of all ranks (summarise).
[[nodiscard]] record training_line(const trainer_state& state, double loss, double norm, double lr,
                                   const record& figures, std::optional<double> loss_scale);

/// The last line of a run that took `seconds` for `samples` samples and the steps after
/// `first_step`.
[[nodiscard]] record closing_line(const trainer_state& state, double seconds, double samples,
                                  std::uint64_t first_step);

[[nodiscard]] std::string stopping_text(const trainer_state& state, const trainer_options& options);

/// The message when `signal` has ended training after `step`, with a checkpoint at `path`.
[[nodiscard]] std::string stopped_text(int signal, std::uint64_t step, const std::string& path,
                                       const option_words& words);

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/lines_impl.hpp>
#endif
