// log_text: what parx_slurm logs says of how a job ended: the culprit with its last lines, what
// parxrun has survived, and what SIGKILL means. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/parx_slurm/logs/log_summary.hpp"
#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

/// The lines on the culprit, as a user reads them; empty where nothing tells of a failure.
[[nodiscard]] std::vector<std::string> culprit_lines(const log_summary& summary);

/// How many ranks have written a line, of all where the logs tell that number.
[[nodiscard]] std::string writers_text(const log_summary& summary);

/// What was wrong before parxrun started the ranks again; empty where it has not.
[[nodiscard]] std::vector<std::string> earlier_lines(const log_summary& summary);

/// The last line: whether the job has ended well, by its logs and Slurm's `state`, which may be
/// empty. Empty where the culprit's lines say it all.
[[nodiscard]] std::string end_text(const log_summary& summary, std::string_view state);

/// What SIGKILL, or else another signal in srun's lines, means; empty: none, or one that needs no
/// word. Where Slurm has ended the job, its state says why.
[[nodiscard]] std::string signal_text(const log_summary& summary, std::string_view state);

/// For a job without a log, `looked` being the places: how to keep one.
[[nodiscard]] std::string no_log_text(const std::vector<std::string>& looked);

}  // namespace parx::slurm
