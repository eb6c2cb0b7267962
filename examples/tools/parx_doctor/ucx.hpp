// For parx_doctor: what UCX has chosen, in a job with PARX_TRANSPORT=ucx, and whether that is what
// the hosts have.
#pragma once

#include <string>
#include <vector>

#include "common/networks.hpp"

#include "tools/parx_doctor/health.hpp"
#include <parx/comm.hpp>

#ifdef PARX_HAS_UCX
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include <parx/core/split.hpp>
#endif

namespace examples {

/// What rank 0 prints.
struct ucx_report {
  std::vector<std::string> lines;
  std::vector<std::string> problems;
};

#ifdef PARX_HAS_UCX

namespace detail {

/// The lanes of a path in one line.
inline std::string path_text(const std::string& lanes) {
  std::string text;
  for (const std::string_view each : parx::detail::split_at(lanes, '\n')) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", each);
  }
  const bool copies = lanes.find("rma_bw") == std::string::npos;
  return text + (copies ? " (no zero copy)" : " (zero copy)");
}

/// What is wrong with this rank's paths.
inline std::vector<std::string> ucx_problems(const parx::ucx_choice& choice,
                                             const std::string& host) {
  std::vector<std::string> problems;
  bool tcp = false, verbs = false;
  for (const auto& [peer, lanes] : choice.lanes) {
    tcp |= lanes.starts_with("tcp/");
    verbs |= lanes.starts_with("rc_") || lanes.starts_with("dc_") || lanes.starts_with("ud_");
  }
  if (tcp && parx::detail::has_rdma_device()) {
    problems.push_back(fmt::format(
        "{}: UCX uses TCP although this host has a device for InfiniBand or RoCE. Is its port up "
        "(ibstat), /dev/infiniband there in this container, and UCX_TLS or UCX_NET_DEVICES set?",
        host));
  }
  rlimit locked{};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  if (verbs && locked.rlim_cur < rlim_t{1} << 30) {
    problems.push_back(fmt::format(
        "{}: UCX may lock only {} KiB of memory, and locks what it sends: ulimit -l unlimited, in "
        "a container --ulimit memlock=-1",
        host, locked.rlim_cur >> 10));
  }
  return problems;
}

/// Collective. The lines of all ranks, each once.
inline std::vector<std::string> united(parx::process_group& world,
                                       const std::vector<std::string>& own) {
  std::string text;
  for (const std::string& each : own) text += each + '\n';
  std::vector<std::string> all;
  for (const std::string& lines : parx::all_gather_object(world, text)) {
    for (const std::string_view each : parx::detail::split_at(lines, '\n')) {
      if (std::find(all.begin(), all.end(), each) == all.end()) all.emplace_back(each);
    }
  }
  return all;
}

}  // namespace detail

/// Collective; after the links were measured.
inline ucx_report ask_ucx(parx::process_group& world, const std::string& host,
                          const std::vector<parx::link_health>& links) {
  parx::ucx_choice choice;
  if (auto* const used = parx::ucx_transport::current()) choice = used->choice();
  std::vector<std::string> lines;
  for (const auto& each : links) {
    const auto path = choice.lanes.find(each.peer);
    if (each.rank != world.rank() || path == choice.lanes.end()) continue;
    lines.push_back(fmt::format("{:>7} - {:<6} UCX {}: {}", each.rank, each.peer, choice.version,
                                detail::path_text(path->second)));
  }
  ucx_report all{detail::united(world, lines),
                 detail::united(world, detail::ucx_problems(choice, host))};
  const auto versions = detail::united(world, {choice.version});
  if (versions.size() > 1) {
    all.problems.push_back(fmt::format(
        "the ranks have UCX \"{}\" and \"{}\": let all hosts have the same one", versions[0],
        versions[1]));
  }
  return all;
}

#else

inline ucx_report ask_ucx(parx::process_group&, const std::string&,
                          const std::vector<parx::link_health>&) {
  return {};
}

#endif

}  // namespace examples
