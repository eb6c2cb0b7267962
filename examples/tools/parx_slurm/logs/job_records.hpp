// job_records: what Slurm knows of a job, or of each task of an array, and which of them is the
// worst. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

struct job_record {
  std::string task;  ///< of an array: "7_3", or "7_[4-6]" of those that wait; else empty
  std::string state;
  std::string exit_code;  ///< "3:0": code and signal
  std::string nodes;
  std::string restarts;
  std::string log;
  std::string reason;  ///< why it waits
  std::string job;     ///< its number, which each task of an array has of its own
};

/// `shown`: the lines of scontrol show job -o; `accounts`: those of sacct -X -n -P -o
/// JobID,State,ExitCode,NodeList, which count where both know. In the order of the tasks.
[[nodiscard]] std::vector<job_record> job_records(std::string_view shown,
                                                  std::string_view accounts);

/// How bad a state is: 0 for one that has ended well or not yet.
[[nodiscard]] int severity(std::string_view state);

/// "4 COMPLETED, 1 FAILED", the most frequent first.
[[nodiscard]] std::string states_text(const std::vector<std::string>& states);

/// Whose log a file is, by its name, "train-7_3.log", else by the first line of a turn among its
/// first ones: "7_3" or "9"; empty where neither says so. Logs of the same are read together.
[[nodiscard]] std::string job_of_log(std::string_view name, std::string_view first_lines);

}  // namespace parx::slurm
