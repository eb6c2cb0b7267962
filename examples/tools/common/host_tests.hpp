// host_tests: what is looked at on each host before a job, by parx_doctor and `parx_slurm check`: a
// table of tests with the fact and the remedy that each tells. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tools/common/finding.hpp"
#include "tools/common/host_facts.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/socket_address.hpp>

namespace parx::inline PARX_ABI::slurm {

/// What the job takes of each node.
struct host_needs {
  int ranks = 1;               ///< of a node
  int threads = 1;             ///< of a rank
  int nodes = 1;               ///< in all
  std::int64_t memory_mb = 0;  ///< 0: not known
  std::int64_t tmp_mb = 0;     ///< free space in TMPDIR; 0: not known
  std::int64_t time_s = 0;     ///< how long it takes; 0: not known
  std::string cache = {};      ///< a path that parx_slurm prepare has still to make; empty: none
};

/// Descriptors of a process: two groups with two for each peer, and 64 for all else.
[[nodiscard]] inline std::int64_t descriptors_of(const host_needs& needs) {
  return 64 + std::int64_t{4} * needs.ranks * needs.nodes;
}
[[nodiscard]] inline std::int64_t processes_of(const host_needs& needs) {
  return std::int64_t{needs.ranks} * (needs.threads + 4) + 16;
}
/// The rings and recorders of a rank, as transport/shm.hpp sizes them, take some MB.
[[nodiscard]] inline std::int64_t shm_mb_of(const host_needs& needs) {
  return std::int64_t{8} * needs.ranks;
}
[[nodiscard]] inline std::int64_t cores_of(const host_needs& needs) {
  return std::int64_t{needs.ranks} * needs.threads;
}

/// How many of a resource a test wants.
using amount = std::int64_t (*)(const host_needs&);

struct host_test {
  bool (*fails)(const host_facts&, const host_needs&);
  std::string (*fact)(const host_facts&, const host_needs&);
  const char* remedy;  ///< with `needed` in place of {}
  bool fatal = true;
  amount needed = [](const host_needs&) { return std::int64_t{0}; };
  std::int64_t host_facts::*free_mb = nullptr;  ///< stands before the fact
};

inline constexpr host_test host_tests[] = {
    {[](auto& host, auto&) { return !host.program_problem.empty(); },
     [](auto& host, auto&) {
       return formatted("the program {} cannot be started: {}", host.program, host.program_problem);
     },
     "Put it where all nodes see it, or let parx_slurm run stage it"},
    {[](auto& host, auto&) { return !host.missing_libraries.empty(); },
     [](auto& host, auto&) {
       return formatted("the program needs {}, which the node does not have",
                        joined_text(host.missing_libraries));
     },
     "Load the modules of the build in the job, or build it on the oldest node"},
    {[](auto& host, auto&) { return !host.missing_instructions.empty(); },
     [](auto& host, auto&) {
       return formatted("the program was compiled for {}, which its processor does not have",
                        joined_text(host.missing_instructions));
     },
     "Compile it on this node, or without -march=native, or choose nodes by -C"},
    {[](auto& host, auto&) { return !host.output_problem.empty(); },
     [](auto& host, auto&) {
       return formatted("nothing can be written to {}: {}", host.output, host.output_problem);
     },
     "Choose an output folder on a file system that all nodes can write"},
    {[](auto& host, auto& needs) { return host.cores < cores_of(needs); },
     [](auto& host, auto& needs) {
       return formatted("{} core{} for {} rank{} of {} thread{}", host.cores,
                        host.cores == 1 ? "" : "s", needs.ranks, needs.ranks == 1 ? "" : "s",
                        needs.threads, needs.threads == 1 ? "" : "s");
     },
     "Ask for -c {} a node, or start fewer ranks or threads", false, cores_of},
    {[](auto& host, auto& needs) {
       const auto cores = static_cast<double>(cores_of(needs));
       return host.cores >= cores && host.quota_cores > 0 && host.quota_cores < cores;
     },
     [](auto& host, auto& needs) {
       return formatted("a quota of {:.1f} cores for {} ranks of {} threads", host.quota_cores,
                        needs.ranks, needs.threads);
     },
     "Start fewer ranks or threads, or ask for more cores", false},
    {[](auto& host, auto& needs) {
       return needs.memory_mb > 0 && host.memory_mb < needs.memory_mb;
     },
     [](auto&, auto& needs) {
       return formatted("of memory are free, {} are needed", size_text(needs.memory_mb));
     },
     "Ask Slurm for --mem={}M, or look at what runs there", true,
     [](auto& needs) { return needs.memory_mb; }, &host_facts::memory_mb},
    {[](auto& host, auto& needs) { return host.shm_mb < shm_mb_of(needs); },
     [](auto&, auto&) -> std::string {
       return "are free in /dev/shm, where the ranks of a node meet";
     },
     "Remove what earlier jobs have left there, or set PARX_TRANSPORT=tcp", true, shm_mb_of,
     &host_facts::shm_mb},
    {[](auto& host, auto& needs) { return host.tmp_mb < needs.tmp_mb; },
     [](auto& host, auto& needs) {
       return formatted("are free in {}, {} are needed", host.tmp, size_text(needs.tmp_mb));
     },
     "Set TMPDIR to a folder with more room", true, [](auto& needs) { return needs.tmp_mb; },
     &host_facts::tmp_mb},
    {[](auto& host, auto& needs) { return host.files < descriptors_of(needs); },
     [](auto& host, auto& needs) {
       return formatted("a process may open {} files, and {} ranks need about {}", host.files,
                        needs.ranks * needs.nodes, descriptors_of(needs));
     },
     "Set ulimit -n {} before the job, or ask the site", true, descriptors_of},
    {[](auto& host, auto& needs) {
       return host.processes >= 0 && host.processes < processes_of(needs);
     },
     [](auto& host, auto& needs) {
       return formatted("a user may have {} processes and threads, and the ranks need about {}",
                        host.processes, processes_of(needs));
     },
     "Set ulimit -u {} before the job, or ask the site", true, processes_of},
    {[](auto& host, auto& needs) {
       return needs.nodes > 1 && parx::detail::is_loopback(host.address);
     },
     [](auto& host, auto&) {
       const bool by_name = parx::detail::is_loopback(host.own_name_is);
       return formatted("its {} {}, which other nodes cannot reach",
                        by_name ? "name resolves to" : "address is",
                        by_name ? host.own_name_is : host.address);
     },
     "Set PARX_SOCKET_IFNAME to its network (eth0, =10.0.0.0/8), or mend /etc/hosts"},
};

/// What the tests find on a host.
inline void add_findings(const host_facts& host, const host_needs& needs,
                         std::vector<finding>& found) {
  for (const host_test& each : host_tests) {
    if (!each.fails(host, needs)) continue;
    found.push_back({.node = host.node,
                     .fact = each.fact(host, needs),
                     .remedy = fmt::format(fmt::runtime(each.remedy), each.needed(needs)),
                     .fatal = each.fatal,
                     .free_mb = each.free_mb == nullptr ? -1 : host.*each.free_mb});
  }
}

/// Where the clock of `node` differs from that of `other`.
inline void add_clock(const std::string& node, double ahead_s, const std::string& other,
                      std::vector<finding>& found) {
  constexpr double much_s = 0.5;
  if (std::abs(ahead_s) < much_s) return;
  found.push_back(
      {.node = node,
       .fact = formatted("its clock is {:.1f} s {} {}'s", std::abs(ahead_s),
                         ahead_s > 0 ? "ahead of" : "behind", other),
       .remedy = "Logs, traces and checkpoints will seem out of order: let chrony or ntpd set it",
       .fatal = false});
}

}  // namespace parx::slurm
