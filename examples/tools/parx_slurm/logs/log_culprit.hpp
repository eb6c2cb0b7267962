// log_culprit: which failure of a job came first, and the lines that tell of it. parxrun's
// record knows it. Without one it is the first error that a rank has written of itself, then a task
// that srun saw end, then a rank that others lost. Pure.
#pragma once

#include <optional>
#include <string>

#include "tools/parx_slurm/logs/log_summary.hpp"

namespace parx::inline PARX_ABI::slurm {

struct log_culprit {
  log_writer writer;   ///< the rank, where it is known
  std::string who;     ///< in words: "rank 4 on n3", "task 1 on n2"; empty: `how` has it
  std::string how;     ///< in words behind `who`: ": Killed, says srun"; empty: `error` says it
  bool was_killed = false;              ///< by SIGKILL
  std::optional<log_error> error = {};  ///< its own, or an echo where nothing else is known
  log_errors::lines last = {};          ///< its last lines, where it has no error
};

/// nullopt where nothing tells of a failure.
[[nodiscard]] std::optional<log_culprit> culprit_of(const log_summary& summary);

}  // namespace parx::slurm
