// log_summary: what a job's logs say of its end. Pure: from lines to turns, ranks, the first error
// and what Slurm has done.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/core/split.hpp>
#include <parx/slurm/log_writer.hpp>

namespace parx::inline PARX_ABI::slurm {

/// A line that tells of a failure, and where it stands.
struct log_line {
  std::string file;
  std::size_t number = 0;  ///< from 1
  std::string text;
  log_writer writer = {};  ///< by the line or its file
};

struct log_summary {
  std::size_t lines = 0;
  int turns = 0;        ///< that have announced themselves (parx_slurm batch); 0: none has
  std::set<int> ranks;  ///< that have written a line with their number
  int world_size = 0;   ///< the largest one that a line names; 0: none does
  std::optional<log_line> first_error;  ///< of the last turn
  std::vector<std::string> before;      ///< up to ten lines before it, of its rank if it has some
  std::deque<std::string> after;        ///< of its rank up to its last ten, else the next ten lines
  nodes_of_ranks nodes;                 ///< by the lines of the last turn
  std::size_t later_errors = 0;         ///< further ones of the last turn
  std::vector<std::string> slurm_lines;  ///< what srun and slurmstepd have said, in the last turn
  std::vector<std::string> launcher_lines;  ///< parxrun's report of the last turn
};

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
/// `attempt` is the text of attempt.json beside it, where there is one.
inline void read_log(std::string_view text, const std::string& file, log_summary& summary,
                     std::string_view attempt = {}) {
  constexpr std::size_t kept = 10;
  const auto keep = [](std::deque<std::string>& lines, std::string line) {
    lines.push_back(std::move(line));
    if (lines.size() > kept) lines.pop_front();
  };
  const log_writer of_file = writer_of_file(file, attempt);
  std::deque<std::string> last;
  std::map<int, std::deque<std::string>> last_of_rank;
  std::size_t number = 0;
  bool in_report = false;
  for (const std::string_view line : parx::detail::split_at(text, '\n')) {
    ++number;
    ++summary.lines;
    if (line.starts_with("turn ") && line.find(" of job ") != line.npos) {
      ++summary.turns;
      summary.first_error.reset();
      summary.before.clear();
      summary.after.clear();
      summary.nodes = {};
      summary.later_errors = 0;
      summary.slurm_lines.clear();
      summary.launcher_lines.clear();
      in_report = false;
    }
    log_writer writer = writer_of_line(line);
    if (!writer.rank || (writer.rank == of_file.rank && writer.node.empty())) writer = of_file;
    if (writer.rank) summary.ranks.insert(*writer.rank);
    summary.nodes.read(line);
    if (const auto size = detail::number_behind(line, "WORLD_SIZE=")) {
      if (*size <= most_ranks) summary.world_size = std::max(summary.world_size, *size);
    }
    const bool of_slurm = detail::is_slurm_line(line);
    // parxrun's report: its headline, and the lines below it that are indented.
    const bool headline = line.starts_with("parxrun: ");
    in_report = headline || (in_report && line.starts_with(" "));
    const std::string shown = detail::shown_line(line);
    if (of_slurm) {
      summary.slurm_lines.push_back(shown);
    } else if (in_report) {
      summary.launcher_lines.push_back(shown);
    } else if (!summary.first_error && detail::is_error(line)) {
      summary.first_error = log_line{file, number, shown, writer};
      const auto own = writer.rank ? last_of_rank.find(*writer.rank) : last_of_rank.end();
      const auto& lines = own == last_of_rank.end() ? last : own->second;
      summary.before.assign(lines.begin(), lines.end());
    } else {
      if (detail::is_error(line)) ++summary.later_errors;
      if (summary.first_error && summary.first_error->file == file &&
          summary.first_error->writer.rank == writer.rank &&
          (writer.rank || summary.after.size() < kept)) {
        keep(summary.after, shown);
      }
    }
    keep(last, shown);
    if (writer.rank) keep(last_of_rank[*writer.rank], shown);
  }
}

/// " rank 3 on n2,": who has written the first error, as far as the logs tell; else empty.
[[nodiscard]] inline std::string who_failed(const log_summary& summary) {
  if (!summary.first_error) return {};
  log_writer writer = summary.first_error->writer;
  if (writer.rank && writer.node.empty()) writer.node = summary.nodes.node_of(*writer.rank);
  if (!writer.rank) return {};
  return formatted(" rank {}{}{},", *writer.rank, writer.node.empty() ? "" : " on ", writer.node);
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
