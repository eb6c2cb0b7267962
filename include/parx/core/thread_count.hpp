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
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI {

/// What limits and what asks for threads.
struct thread_choice {
  int threads = 1;
  int asked = 1;                ///< by the environment, before the limits
  std::string asked_by;         ///< the variable's name; "" for none
  int cores = 1;                ///< of the affinity mask
  std::optional<double> quota;  ///< of the control groups, in cores
  /// "OMP_NUM_THREADS=\"auto\"": another program's variable that is no number of threads.
  std::string passed_over = {};

  /// "OMP_NUM_THREADS=64 on 2 cores", for a message; "" where the choice is the default.
  [[nodiscard, gnu::cold]] std::string reason() const {
    if (asked_by.empty()) return "";
    std::string text = formatted("{}={}", asked_by, asked);
    if (threads == asked) return text;
    if (threads == cores) return text + formatted(", {} core{}", cores, cores == 1 ? "" : "s");
    return text + formatted(", a quota of {:.2g} cores", quota.value_or(0));
  }
  /// What to say of `passed_over`; "" where nothing was.
  [[nodiscard]] std::string warning() const {
    if (passed_over.empty()) return "";
    return formatted(
        "{} is no number of threads: each rank computes with {} ({}). PARX_THREADS says how many",
        passed_over, threads, asked_by.empty() ? "the default" : reason());
  }
  /// What to say where this process also has `openmp` threads of OpenMP, which a variable of parx
  /// does not limit and which spin between their loops; "" where the cores are enough for both.
  [[nodiscard, gnu::cold]] std::string warning_beside(int openmp) const {
    if (asked_by != "PARX_THREADS" || threads == 1 || openmp < 2) return "";
    if (threads + openmp - 1 <= cores) return "";
    return formatted(
        "each rank has {} threads of parx (PARX_THREADS) and {} of OpenMP on {} core{}: give both "
        "their number by OMP_NUM_THREADS, or OpenMP one by OMP_NUM_THREADS=1",
        threads, openmp, cores, cores == 1 ? "" : "s");
  }
};

/// The choice by `env` for a process with these limits. Throws usage_error for a PARX_THREADS that
/// is no number from 1; other programs' variables are passed over where they make no sense, which
/// warning() says.
[[nodiscard, gnu::cold]] inline thread_choice choose_threads(const environment& env, int cores,
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
                  printable(*text));
    }
    ask("PARX_THREADS", count);
  }
  // A list is one number for each level of nesting: "4,2". OpenMP allows blanks around each.
  static constexpr std::string_view blanks = " \t\r\n";
  for (const std::string_view name : {"OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"}) {
    if (!choice.asked_by.empty()) break;
    const std::string text = env_string(env, name).value_or("");
    std::string_view first = std::string_view(text).substr(0, text.find(','));
    first.remove_prefix(std::min(first.find_first_not_of(blanks), first.size()));
    first = first.substr(0, first.find_last_not_of(blanks) + 1);
    ask(name, detail::parse_number<int>(first));
    if (!text.empty() && choice.asked_by.empty() && choice.passed_over.empty()) {
      choice.passed_over = formatted("{}=\"{}\"", name, printable(text));
    }
  }
  const double allowed = std::max(1.0, quota.value_or(std::numeric_limits<int>::max()));
  choice.threads = std::min({choice.asked, choice.cores, static_cast<int>(allowed)});
  return choice;
}

/// The processors that this thread may run on, in ascending order; none where the system does not
/// tell.
[[nodiscard, gnu::cold]] inline std::vector<int> allowed_cores() {
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
[[nodiscard, gnu::cold]] inline thread_choice choose_threads(const environment& env) {
  return choose_threads(env, static_cast<int>(allowed_cores().size()), detail::own_cpu_quota());
}

}  // namespace parx
