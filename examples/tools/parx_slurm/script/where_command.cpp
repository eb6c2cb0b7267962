#include "tools/parx_slurm/script/where_command.hpp"

#include <vector>

#include "common/shell_text.hpp"

namespace parx::inline PARX_ABI::slurm {

std::string where_command(const batch_options& job, const std::string& program) {
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
