// where_command: the line of parx_slurm where that asks for the nodes of a batch script. Pure.
#pragma once

#include <string>
#include <vector>

#include <parx/slurm/batch_script.hpp>
#include <parx/slurm/shell_text.hpp>
#include <parx/slurm/time_limit.hpp>

namespace parx::inline PARX_ABI::slurm {

/// "parx_slurm where -N 3 --cores 8 -t 2:00:00 --program /home/u/train", as a user could type it.
/// `program`: whose instructions the nodes must have; empty: any node will do.
[[nodiscard]] inline std::string where_command(const batch_options& job,
                                               const std::string& program) {
  std::vector<std::string> words{"parx_slurm", "where",
                                 "-N",         std::to_string(job.nodes),
                                 "--cores",    std::to_string(job.ranks * job.threads)};
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  add("-t", job.time.count() == 0 ? std::string() : to_time_limit(job.time));
  add("--mem", job.memory_mb == 0 ? std::string() : std::to_string(job.memory_mb) + "M");
  add("-p", job.partition);
  add("-x", job.exclude);
  add("-A", job.account);
  add("--program", program);
  return shell_text(words);
}

}  // namespace parx::slurm
