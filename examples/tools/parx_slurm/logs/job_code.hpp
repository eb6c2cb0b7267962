// job_code: the exit code of a job of several parxruns under one srun. Pure.
//
// All parxruns end with the job's code, and srun with the highest one of its tasks. Where a parxrun
// itself was killed, with its node or by the kernel for want of memory, srun has that signal's code
// (137), which says nothing of the job. The record of the first node's parxrun has the job's; where
// that one was killed, so have those that have ended by themselves. srun says nothing of tasks that
// have ended with 0: where the first one has, and another was killed, the job has gone on and ended
// well.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "tools/common/job_report.hpp"
#include "tools/parx_slurm/logs/ended_tasks.hpp"
#include <parx/core/abi.hpp>
#include <parx/core/parse_number.hpp>

namespace parx::inline PARX_ABI::slurm {

/// Reads what srun writes to standard error, its own lines and those of the parxruns. Lines of
/// ranks have the rank before them, so none of them looks like these.
class job_code {
 public:
  /// The next bytes, in pieces of any size.
  void read(std::string_view bytes) {
    for (;;) {
      const auto end = bytes.find('\n');
      const std::string_view piece = bytes.substr(0, end);
      // Longer ones are a rank's.
      if (line_.size() <= longest) line_.append(piece.substr(0, longest + 1));
      if (end == bytes.npos) return;
      read_line();
      line_.clear();
      bytes.remove_prefix(end + 1);
    }
  }

  /// The job's code, where srun has ended with `srun_code`.
  [[nodiscard]] int value(int srun_code) const {
    if (reported_) return *reported_;
    if (of_tasks_.empty() && was_any_killed_ && !was_first_killed_) return 0;
    return of_tasks_.size() == 1 ? *of_tasks_.begin() : srun_code;
  }
  /// Whether the parxrun of the first node was killed.
  [[nodiscard]] bool was_first_killed() const noexcept { return was_first_killed_; }

 private:
  static constexpr std::size_t longest = 4096;

  void read_line() {
    constexpr std::string_view exited = "Exited with exit code ";
    const std::string_view line = line_;
    if (const auto outcome = outcome_of_line(line); outcome && !outcome->goes_on) {
      reported_ = outcome->code;
    } else if (const auto tasks = ended_tasks_of(line)) {
      const std::string_view how = tasks->how;
      if (!how.starts_with(exited)) {
        was_any_killed_ = true;
        was_first_killed_ |= tasks->has(0);
      } else if (const auto code = parx::detail::parse_number<int>(how.substr(exited.size()))) {
        of_tasks_.insert(*code);
      }
    }
  }

  std::string line_;  ///< begun
  std::optional<int> reported_;
  std::set<int> of_tasks_;  ///< of the parxruns that ended by themselves, without 0
  bool was_any_killed_ = false, was_first_killed_ = false;
};

}  // namespace parx::slurm
