// For parx_slurm: "logs", how a job ended, by its logs and Slurm's own records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/parx_slurm/logs/job_records.hpp"
#include "tools/parx_slurm/logs/log_culprit.hpp"
#include "tools/parx_slurm/logs/log_summary.hpp"
#include <parx/core/parse_number.hpp>

namespace examples {

/// What Slurm knows of a job, or of the tasks of an array; empty where it has forgotten it and
/// keeps no accounts.
std::vector<parx::slurm::job_record> records_of(const std::string& job);

/// A job, or a task of an array: what Slurm knows of it, and what its logs tell.
struct told_job {
  std::string name;  ///< of a task "7_3", of a job its number; empty: of no other
  parx::slurm::job_record record;
  std::vector<std::filesystem::path> files;
  std::map<std::filesystem::path, std::string> unreadable;  ///< of them, and why
  parx::slurm::log_summary summary;

  [[nodiscard]] std::string state() const {
    return record.state.empty() ? parx::slurm::state_from_lines(summary.slurm_lines) : record.state;
  }
  [[nodiscard]] bool is_read() const { return files.size() > unreadable.size(); }
  /// How bad its end is; where Slurm does not know, by its logs.
  [[nodiscard]] std::pair<int, int> badness() const {
    const std::string code = record.exit_code.substr(0, record.exit_code.find(':'));
    const bool failed = state().empty() && parx::slurm::culprit_of(summary);
    return {parx::slurm::severity(failed ? "FAILED" : state()),
            parx::detail::parse_number<int>(code).value_or(0)};
  }
  [[nodiscard]] bool has_failed() const { return badness().first > 0; }
};

inline constexpr std::string_view logs_usage =
    "How a job ended, by its logs and Slurm's records\n\nUsage:\n"
    "  parx_slurm logs 4711         a job; its log is where Slurm says, else in ., slurm_logs,\n"
    "                               logs or ~/slurm_logs, with that number in its name\n"
    "  parx_slurm logs tiny.log     a log\n"
    "  parx_slurm logs slurm_logs   all logs in a folder: .log, .out and .err\n\n"
    "Exits with 4 where a job has failed or Slurm has ended it; else with 3 where there is no\n"
    "log, or one cannot be read; else with 0, also where it still waits or runs.\n";

/// Prints how the job ended, or for --help what may be asked; of several jobs, or tasks of an
/// array, each. Returns 4 where one has not ended well; else 3 where there are neither logs nor
/// records of it, or one of its logs cannot be read; else 0.
int logs(const std::string& what);

}  // namespace examples
