// thread_placement: how many threads each of the ranks of a host computes with, and on which cores.
// Pure.
//
// choose_threads() (core/thread_count.hpp) knows one process. A job of several ranks on a host has
// further limits: together they have no more threads than the host has cores, and share a quota.
//
// Threads are bound to cores only where those of the job fill the cores that it may use, one each:
// there the kernel may leave two threads on one core for long (measured on 2 cores: 1.0 times the
// speed of one thread instead of 1.75). Where cores are left over the kernel finds a free one, and
// two jobs on one machine must not both take the first cores.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/thread_count.hpp>

namespace parx::inline PARX_ABI {

/// Where a rank is.
struct rank_place {
  int local_rank = 0;           ///< among the job's ranks on its host
  int local_ranks = 1;          ///< their number
  int host_cores = 1;           ///< of the whole host
  std::vector<int> cores = {};  ///< that the rank may use, ascending
};

struct thread_placement {
  int threads = 1;
  int asked = 1;                ///< before the limits
  std::vector<int> cores = {};  ///< of each thread, the caller's first; empty: bound to none
  bool shared = false;          ///< more threads than cores: nobody may spin
  std::string reason = {};      ///< "OMP_NUM_THREADS=64, 2 cores"; "" by default
};

/// `binding` is OMP_PROC_BIND: "false" binds nothing.
[[nodiscard, gnu::cold]] inline thread_placement lay_out_threads(const thread_choice& choice,
                                                              const rank_place& place,
                                                              std::string_view binding = {}) {
  const int ranks = std::max(place.local_ranks, 1);
  thread_placement made{
      .threads = choice.threads, .asked = choice.asked, .reason = choice.reason()};
  int most = std::max(place.host_cores / ranks, 1);
  std::string why = formatted("{} ranks on {} core{}", ranks, place.host_cores,
                              place.host_cores == 1 ? "" : "s");
  if (choice.quota && static_cast<int>(*choice.quota / ranks) < most) {
    most = std::max(static_cast<int>(*choice.quota / ranks), 1);
    why = formatted("{} ranks share a quota of {:.2g} cores", ranks, *choice.quota);
  }
  if (ranks > 1 && made.threads > most) {
    made.threads = most;
    made.reason = formatted("{}={}, {}", choice.asked_by, choice.asked, why);
  }
  made.shared = made.threads * ranks > place.host_cores;
  const auto count = static_cast<std::size_t>(made.threads);
  if (made.threads == 1 || made.shared || binding == "false" || binding == "FALSE") return made;
  if (place.cores.size() == count) {  // the rank's own
    made.cores = place.cores;
  } else if (place.cores.size() == count * static_cast<std::size_t>(ranks)) {
    const auto first = place.cores.begin() + place.local_rank * made.threads;
    made.cores.assign(first, first + made.threads);
  }
  return made;
}

/// What parx::run says of it; "" where there is nothing to say.
[[nodiscard, gnu::cold]] inline std::string to_text(const thread_placement& layout, int ranks) {
  if (layout.threads == 1 && layout.asked == 1) return "";
  return formatted("{} rank{} x {} thread{} ({})", ranks, ranks == 1 ? "" : "s", layout.threads,
                   layout.threads == 1 ? "" : "s", layout.reason);
}

/// For a rank that torchrun has started: it sets OMP_NUM_THREADS=1 where the user has not, whatever
/// Slurm has given each task. "" where nothing is hidden.
[[nodiscard, gnu::cold]] inline std::string hidden_by_torchrun(const environment& env) {
  if (env_string(env, "PARX_THREADS") || env_string(env, "OMP_NUM_THREADS") != "1") return "";
  const auto number = [&](std::string_view name) {
    return detail::parse_number<int>(env_string(env, name).value_or("")).value_or(1);
  };
  const int of_task = number("SLURM_CPUS_PER_TASK");
  const int of_rank = of_task / std::max(number("LOCAL_WORLD_SIZE"), 1);
  if (of_rank <= 1) return "";
  return formatted(
      "each rank computes with 1 thread, because torchrun has set OMP_NUM_THREADS=1, but Slurm "
      "gave this task {} cores: PARX_THREADS={} uses them",
      of_task, of_rank);
}

}  // namespace parx
