// An id for a job started by MPICH's launcher (hydra). Its variables are the same for two jobs on a
// host, but each job's ranks on a host are descendants of one hydra_pmi_proxy.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <string>
#include <string_view>

#include <parx/core/env.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>
#include <parx/launch/detail/rank_env.hpp>

namespace parx::inline PARX_ABI::detail {

struct process_stat {
  std::string name;  ///< truncated to 15 characters by the kernel
  int parent = 0;
};

/// Parses /proc/PID/stat: "PID (name) S PARENT ...". The name may contain any characters.
[[nodiscard]] inline process_stat parse_process_stat(std::string_view text) {
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  if (open == text.npos || close == text.npos || close < open || close + 4 >= text.size())
    return {};
  process_stat result{std::string(text.substr(open + 1, close - open - 1)), 0};
  for (std::size_t at = close + 4; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    result.parent = result.parent * 10 + (text[at] - '0');
  }
  return result;
}

/// The pid of the nearest ancestor that is a hydra proxy, or 0.
[[nodiscard]] inline int find_hydra_proxy() {
  int pid = ::getppid();
  for (int depth = 0; depth < 32 && pid > 1; ++depth) {
    const auto text = file_text(formatted("/proc/{}/stat", pid));
    const process_stat stat = parse_process_stat(text.value_or(""));
    if (stat.name.starts_with("hydra_")) return pid;
    pid = stat.parent;
  }
  return 0;
}

/// `env` with PARX_RUN_ID added for a hydra job on one host that has no other id. On several hosts
/// nothing is added, because each has a proxy of its own.
[[nodiscard]] inline environment with_hydra_run_id(environment env) {
  const auto size = env_string(env, "PMI_SIZE");
  if (size && size == env_string(env, "MPI_LOCALNRANKS") &&
      !any_set(env, {"PARX_RUN_ID", "PMI_JOBID"})) {
    if (const int pid = find_hydra_proxy(); pid != 0) {
      env["PARX_RUN_ID"] = formatted("hydra-{}", pid);
    }
  }
  return env;
}

}  // namespace parx::detail
