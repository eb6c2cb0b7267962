// log_summary: what a job's logs say of its end. Pure: from lines to turns, ranks, the first error
// and what Slurm has done.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::slurm {

/// A line that tells of a failure, and where it stands.
struct log_line {
  std::string file;
  std::size_t number = 0;  ///< from 1
  std::string text;
};

struct log_summary {
  std::size_t lines = 0;
  int turns = 0;        ///< that have announced themselves (parx_slurm batch); 0: none has
  std::set<int> ranks;  ///< that have written a line with their number
  int world_size = 0;   ///< the largest one that a line names; 0: none does
  std::optional<log_line> first_error;   ///< of the last turn
  std::vector<std::string> before;       ///< up to ten lines before it
  std::size_t later_errors = 0;          ///< further ones of the last turn
  std::vector<std::string> slurm_lines;  ///< what srun and slurmstepd have said, in the last turn
  std::vector<std::string> launcher_lines;  ///< parxrun's report of the last turn
};

/// Larger numbers are no rank and no world size, whatever a line calls them.
inline constexpr int most_ranks = 1'000'000;

namespace detail {

/// A line as it is shown: what a terminal would show of a progress bar, its last state, and no more
/// than fits into some lines.
[[nodiscard]] inline std::string shown_line(std::string_view line) {
  constexpr std::size_t most = 600;
  line = line.substr(0, line.find_last_not_of('\r') + 1);
  line.remove_prefix(line.rfind('\r') + 1);  // 0 where there is none
  if (line.size() <= most) return std::string(line);
  return std::string(line.substr(0, most)) + "...";
}

/// The number behind `word` in `line`; nullopt where there is none.
[[nodiscard]] inline std::optional<int> number_behind(std::string_view line,
                                                      std::string_view word) {
  const auto at = line.find(word);
  if (at == line.npos) return std::nullopt;
  std::string_view rest = line.substr(at + word.size());
  rest = rest.substr(0, rest.find_first_not_of("0123456789"));
  return parx::detail::parse_number<int>(rest);
}

/// The rank that wrote a line: "[rank 3] ..." (parxrun), "[RANK 3] ..." (the labs), "[parx rank
/// 3]",
/// "[default3]:" (torchrun), "3: ..." (srun --label).
[[nodiscard]] inline std::optional<int> rank_of_line(std::string_view line) {
  for (const std::string_view word : {"[rank ", "[RANK ", "[parx rank "}) {
    if (const auto rank = number_behind(line, word)) return rank;
  }
  if (line.starts_with("[default")) return number_behind(line, "[default");
  const auto colon = line.find(": ");
  return colon == line.npos ? std::nullopt : parx::detail::parse_number<int>(line.substr(0, colon));
}

[[nodiscard]] inline bool is_slurm_line(std::string_view line) {
  return line.starts_with("srun: ") || line.starts_with("slurmstepd") ||
         line.starts_with("sbatch: ");
}

/// Whether a line tells of a failure: what the labs grep for, and what parx and shells say.
[[nodiscard]] inline bool is_error(std::string_view line) {
  constexpr std::array<std::string_view, 13> marks{"Traceback (most recent call last)",
                                                   "Error: ",
                                                   "ERROR",
                                                   "] error: ",
                                                   "Segmentation fault",
                                                   "terminate called",
                                                   "Killed",
                                                   "Illegal instruction",
                                                   "core dumped",
                                                   "No space left on device",
                                                   "command not found",
                                                   "No such file or directory",
                                                   "Permission denied"};
  return std::any_of(marks.begin(), marks.end(),
                     [&](std::string_view each) { return line.find(each) != line.npos; });
}

}  // namespace detail

/// Reads one more log into `summary`. A turn that begins forgets the errors of the one before it.
inline void read_log(std::string_view text, const std::string& file, log_summary& summary) {
  constexpr std::size_t kept = 10;
  std::deque<std::string> last;
  std::size_t number = 0;
  bool in_report = false;
  for (const std::string_view line : parx::detail::split_at(text, '\n')) {
    ++number;
    ++summary.lines;
    if (line.starts_with("turn ") && line.find(" of job ") != line.npos) {
      ++summary.turns;
      summary.first_error.reset();
      summary.before.clear();
      summary.later_errors = 0;
      summary.slurm_lines.clear();
      summary.launcher_lines.clear();
      in_report = false;
    }
    if (const auto rank = detail::rank_of_line(line); rank && *rank < most_ranks) {
      summary.ranks.insert(*rank);
    }
    if (const auto size = detail::number_behind(line, "WORLD_SIZE=")) {
      if (*size <= most_ranks) summary.world_size = std::max(summary.world_size, *size);
    }
    const bool of_slurm = detail::is_slurm_line(line);
    // parxrun's report: its headline, and the lines below it that are indented.
    const bool headline = line.starts_with("parxrun: ");
    in_report = headline || (in_report && line.starts_with(" "));
    if (of_slurm) {
      summary.slurm_lines.push_back(detail::shown_line(line));
    } else if (in_report) {
      summary.launcher_lines.push_back(detail::shown_line(line));
    } else if (detail::is_error(line)) {
      if (!summary.first_error) {
        summary.first_error = log_line{file, number, detail::shown_line(line)};
        summary.before.assign(last.begin(), last.end());
      } else {
        ++summary.later_errors;
      }
    }
    last.push_back(detail::shown_line(line));
    if (last.size() > kept) last.pop_front();
  }
}

/// What a state of a job means, and what helps: the words of sacct and scontrol. Empty for states
/// that need no explanation.
[[nodiscard]] inline std::string meaning_of_state(std::string_view state) {
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

/// What a signal in the lines of srun means; empty: none, or one that needs no word.
[[nodiscard]] inline std::string meaning_of_signal(const std::vector<std::string>& lines) {
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

/// The state that lines of slurmstepd tell, for sites without accounting; empty: none.
[[nodiscard]] inline std::string state_from_lines(const std::vector<std::string>& lines) {
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
