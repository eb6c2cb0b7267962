// log_writer: which rank has written a line of a log, and on which node: by what launchers write
// before it, by the name of its file, and by what other lines say of that rank. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tools/common/job_report.hpp"
#include "tools/parx_slurm/logs/ended_tasks.hpp"
#include <parx/core/log.hpp>

namespace parx::inline PARX_ABI::slurm {

struct log_writer {
  std::optional<int> rank;
  std::string node;  ///< empty: not known

  friend bool operator==(const log_writer&, const log_writer&) = default;
};

/// Larger numbers are no rank and no world size, whatever a line calls them.
inline constexpr int most_ranks = 1'000'000;

namespace detail {

/// The number behind `word` in `line`; nullopt where there is none.
[[nodiscard]] std::optional<int> number_behind(std::string_view line, std::string_view word);

/// The part of `line` between `begin` and the first of `ends` behind it; empty where there is none.
[[nodiscard]] std::string_view text_between(std::string_view line, std::string_view begin,
                                            std::string_view ends);

/// The rank that wrote a line: "[rank 3] ..." (parxrun), "[RANK 3] ..." (the labs), "[parx rank
/// 3]", "[default3]:" (torchrun), "3: ..." (srun --label).
[[nodiscard]] std::optional<int> rank_of_line(std::string_view line);

}  // namespace detail

/// What a line says of its writer itself: "[rank 3 on n2] ..." and "[parx rank 3 on n2] ..." are
/// parxrun's over several nodes.
[[nodiscard]] log_writer writer_of_line(std::string_view line);

/// "rank 4 on n3"; empty where the rank is not known.
[[nodiscard]] std::string name_of(const log_writer& writer);

/// Who writes the lines of a file, by its name: "n1.r3.err" of parxrun's --log-dir, whose `report`
/// lists the nodes; "lab.7.n1.3.out" of srun's %x.%j.%N.%t.
[[nodiscard]] log_writer writer_of_file(std::string_view path,
                                        const generation_report* report = nullptr);

/// On which node each rank is, by what lines of a log say of them.
class nodes_of_ranks {
 public:
  /// `writer`: what the line says of it itself. An error of parx names the node of the rank that it
  /// blames.
  void read(std::string_view line, const log_writer& writer) {
    if (!writer.node.empty()) said_.insert_or_assign(*writer.rank, writer.node);
    if (const auto tag = blame_in_line(line); tag && tag->rank >= 0 && is_name(tag->host)) {
      said_.insert_or_assign(tag->rank, tag->host);
    }
    for (const std::string_view mark : {"[rank ", "[default", "parxrun: ", "torchrun"}) {
      tasks_are_ranks_ = tasks_are_ranks_ && line.find(mark) == line.npos;
    }
    read_srun(line);
  }

  /// Empty where no line says so.
  [[nodiscard]] std::string node_of(int rank) const {
    if (const auto found = said_.find(rank); found != said_.end()) return found->second;
    const auto found = tasks_.find(rank);
    return !tasks_are_ranks_ || found == tasks_.end() ? std::string() : found->second;
  }
  /// Whether no launcher stands between srun and the ranks.
  [[nodiscard]] bool tasks_are_ranks() const noexcept { return tasks_are_ranks_; }

 private:
  [[nodiscard]] static bool is_name(std::string_view word) {
    constexpr std::string_view characters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    return !word.empty() && word.find_first_not_of(characters) == word.npos;
  }

  /// "srun: error: n08: tasks 2-3: Exited with exit code 1". Of several nodes in one line nobody
  /// knows which task is on which.
  void read_srun(std::string_view line) {
    const auto ended = ended_tasks_of(line);
    if (!ended || !is_name(ended->node)) return;
    for (const auto& [first, last] : ended->ranges) {
      if (last >= most_ranks) return;
      for (int task = first; task <= last; ++task) tasks_.insert_or_assign(task, ended->node);
    }
  }

  std::map<int, std::string> said_;
  std::map<int, std::string> tasks_;  ///< of srun
  bool tasks_are_ranks_ = true;
};

}  // namespace parx::slurm
