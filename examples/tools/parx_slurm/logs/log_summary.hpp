// log_summary: what a job's logs say of its end: turns, ranks, errors and what Slurm and parxrun
// have said. log_reader.hpp reads them; log_culprit.hpp says which error is the cause. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/job_report.hpp"
#include "tools/parx_slurm/logs/log_errors.hpp"
#include "tools/parx_slurm/logs/log_writer.hpp"

namespace parx::inline PARX_ABI::slurm {

/// The last turn begins anew where parxrun starts the ranks again.
struct log_summary {
  std::size_t lines = 0;
  int turns = 0;         ///< that have announced themselves (parx_slurm batch); 0: none has
  std::set<int> ranks;   ///< that have written a line with their number
  int world_size = 0;    ///< the largest one that a line names; 0: none does
  log_errors errors;     ///< of the last turn
  nodes_of_ranks nodes;  ///< by the lines of the last turn
  std::vector<std::string> slurm_lines;     ///< what srun and slurmstepd have said, since then
  std::vector<std::string> launcher_lines;  ///< parxrun's lines, and its report
  std::optional<job_outcome> outcome;       ///< what parxrun has recorded of the end
  /// By rank, what parxrun has recorded of its last lines, or else of its failure.
  std::map<int, std::deque<std::string>> recorded_lines;
  std::vector<std::string> survived;        ///< why parxrun has started the ranks again, each time
  std::optional<log_line> earlier_error;    ///< the first own one before it did so the last time
};

namespace detail {

[[nodiscard]] bool is_slurm_line(std::string_view line);

}  // namespace detail

/// Takes over what parxrun's report.json says of a generation of which there are logs.
void add_report(const generation_report& report, log_summary& summary);

/// What a state of a job means, and what helps: the words of sacct and scontrol. Empty for states
/// that need no explanation.
[[nodiscard]] std::string meaning_of_state(std::string_view state);

/// What a signal in the lines of srun means; empty: none, or one that needs no word.
[[nodiscard]] std::string meaning_of_signal(const std::vector<std::string>& lines);

/// The state that lines of slurmstepd tell, for sites without accounting; empty: none.
[[nodiscard]] std::string state_from_lines(const std::vector<std::string>& lines);

}  // namespace parx::slurm
