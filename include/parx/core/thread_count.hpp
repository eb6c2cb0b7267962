// thread_count: how many threads a rank computes with, and why.
//
// PARX_THREADS, else OMP_NUM_THREADS (which parxrun and torchrun set), else SLURM_CPUS_PER_TASK
// (of srun -c), else 1; never more than the process may use at once: the cores of its affinity
// mask, and its control groups' quota, rounded down, because one thread more than the quota has all
// of them stopped at the end of every period.
#pragma once

#include <sched.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/cpu_quota.hpp>
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

/// What limits and what asks for threads.
struct thread_choice {
  int threads = 1;
  int asked = 1;                ///< by the environment, before the limits
  std::string asked_by;         ///< the variable's name; "" for none
  int cores = 1;                ///< of the affinity mask
  std::optional<double> quota;  ///< of the control groups, in cores

  /// "OMP_NUM_THREADS=64 on 2 cores", for a message; "" where the choice is the default.
  [[nodiscard]] std::string reason() const {
    if (asked_by.empty()) return "";
    std::string text = formatted("{}={}", asked_by, asked);
    if (threads == asked) return text;
    if (threads == cores) return text + formatted(", {} core{}", cores, cores == 1 ? "" : "s");
    return text + formatted(", a quota of {:.2g} cores", quota.value_or(0));
  }
};

/// The choice by `env` for a process with these limits. Throws usage_error for a PARX_THREADS that
/// is no number from 1; other programs' variables are passed over where they make no sense.
[[nodiscard]] inline thread_choice choose_threads(const environment& env, int cores,
                                                  std::optional<double> quota) {
  thread_choice choice;
  choice.cores = std::max(cores, 1);
  choice.quota = quota;
  const auto ask = [&](std::string_view name, std::optional<int> count) {
    if (!choice.asked_by.empty() || !count || *count < 1) return;
    choice.asked = *count;
    choice.asked_by = name;
  };
  if (const auto text = env_string(env, "PARX_THREADS")) {
    const auto count = env_number<int>(env, "PARX_THREADS", "a number of threads from 1");
    if (count && *count < 1) {
      throw_usage("environment variable PARX_THREADS=\"{}\" is not a number of threads from 1",
                  *text);
    }
    ask("PARX_THREADS", count);
  }
  // A list is one number for each level of nesting: "4,2".
  for (const std::string_view name : {"OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"}) {
    const std::string text = env_string(env, name).value_or("");
    ask(name, detail::parse_number<int>(text.substr(0, text.find(','))));
  }
  const double allowed = std::max(1.0, quota.value_or(std::numeric_limits<int>::max()));
  choice.threads = std::min({choice.asked, choice.cores, static_cast<int>(allowed)});
  return choice;
}

/// The processors that this thread may run on, in ascending order; none where the system does not
/// tell.
[[nodiscard]] inline std::vector<int> allowed_cores() {
  std::vector<int> found;
  // A machine may have more processors than a cpu_set_t holds; the kernel refuses a mask that is
  // too short.
  for (std::size_t words = 1; words <= 64; words *= 2) {
    std::vector<cpu_set_t> mask(words);
    const std::size_t bytes = words * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, mask.data()) != 0) continue;
    for (std::size_t core = 0; core < words * CPU_SETSIZE; ++core) {
      if (CPU_ISSET_S(core, bytes, mask.data())) found.push_back(static_cast<int>(core));
    }
    break;
  }
  return found;
}

/// The choice for this process.
[[nodiscard]] inline thread_choice choose_threads(const environment& env) {
  return choose_threads(env, static_cast<int>(allowed_cores().size()), detail::own_cpu_quota());
}

}  // namespace parx
