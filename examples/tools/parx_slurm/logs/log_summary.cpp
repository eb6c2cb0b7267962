#include "tools/parx_slurm/logs/log_summary.hpp"

#include <algorithm>
#include <array>

namespace parx::inline PARX_ABI::slurm {

namespace detail {

bool is_slurm_line(std::string_view line) {
  return line.starts_with("srun: ") || line.starts_with("slurmstepd") ||
         line.starts_with("sbatch: ");
}

}  // namespace detail

void add_report(const generation_report& report, log_summary& summary) {
  if (report.outcome) {
    summary.outcome = report.outcome;
    summary.world_size = std::max(summary.world_size, report.outcome->world_size);
  }
  for (const auto& node : report.nodes) {
    for (const auto& each : node.ranks) {
      auto& lines = summary.recorded_lines[each.rank];
      lines.assign(each.last_lines.begin(), each.last_lines.end());
      if (lines.empty() && each.record) lines.push_back(each.record->text);
    }
  }
}

std::string meaning_of_state(std::string_view state) {
  struct row {
    std::string_view state, text;
  };
  static constexpr std::array<row, 8> table{{
      {"TIMEOUT",
       "it ran into its time limit: ask for a longer --time, or let it go on turn by turn "
       "(parx_slurm batch)"},
      {"OUT_OF_MEMORY",
       "a node's memory did not suffice: ask for more --mem, start fewer ranks a "
       "node, or shard the model (zero=1 to fsdp)"},
      {"NODE_FAIL",
       "a node died; Slurm starts the job again where it was submitted with --requeue"},
      {"PREEMPTED", "it had to make room for a more important job; with --requeue it comes back"},
      {"CANCELLED", "somebody cancelled it (scancel), or its allocation was given up"},
      {"BOOT_FAIL", "a node did not start"},
      {"DEADLINE", "it could not end before its deadline"},
      {"FAILED", "its script or a task of it ended with a code other than 0"},
  }};
  for (const row& each : table) {
    if (state.starts_with(each.state)) return std::string(each.text);
  }
  return {};
}

std::string meaning_of_signal(const std::vector<std::string>& lines) {
  struct row {
    std::string_view mark, text;
  };
  static constexpr std::array<row, 2> table{{
      {": User defined signal ",
       "the warning before the end of the time ended ranks that do not catch it: a trainer of parx "
       "does with --output-dir and without --save-strategy no"},
      {": Illegal instruction",
       "the program was compiled for another processor: parx_slurm check says which node, or "
       "compile it without -march=native"},
  }};
  for (const row& each : table) {
    for (const std::string& line : lines) {
      if (line.find(each.mark) != line.npos) return std::string(each.text);
    }
  }
  return {};
}

std::string state_from_lines(const std::vector<std::string>& lines) {
  struct row {
    std::string_view mark, state;
  };
  static constexpr std::array<row, 7> table{{{"DUE TO TIME LIMIT", "TIMEOUT"},
                                             {"DUE TO PREEMPTION", "PREEMPTED"},
                                             {"DUE TO NODE FAILURE", "NODE_FAIL"},
                                             {"oom_kill", "OUT_OF_MEMORY"},
                                             {"oom-kill", "OUT_OF_MEMORY"},
                                             {"Out Of Memory", "OUT_OF_MEMORY"},
                                             {"CANCELLED AT", "CANCELLED"}}};
  for (const row& each : table) {
    for (const std::string& line : lines) {
      if (line.find(each.mark) != line.npos) return std::string(each.state);
    }
  }
  return {};
}

}  // namespace parx::slurm
