// cpu_quota: how many cores' time the control groups of this process allow.
//
// A container "with 2 cores" usually has an affinity mask of all cores of its host and a quota of
// 200 ms of processor time every 100 ms. Threads beyond the quota are stopped for the rest of each
// period, all at once. Every group from the process's own up to the root may have one. Sources:
// cgroups(7); the kernel's admin-guide/cgroup-v2 (cpu.max) and scheduler/sched-bwc
// (cpu.cfs_quota_us); proc(5) on mountinfo.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::detail {

/// One hierarchy of control groups that limits processor time.
struct cpu_hierarchy {
  std::string mount;  ///< where it is mounted
  std::string group;  ///< this process's group, below the mount: "" or "/a/b"
  bool is_v2 = false;
};

/// The hierarchies, from the texts of /proc/self/cgroup and /proc/self/mountinfo.
[[nodiscard, gnu::cold]] inline std::vector<cpu_hierarchy> cpu_hierarchies(
    std::string_view cgroup, std::string_view mountinfo) {
  const auto names_cpu = [](std::string_view list) {
    const auto names = split_at(list, ',');
    return std::find(names.begin(), names.end(), "cpu") != names.end();
  };
  std::vector<cpu_hierarchy> found;
  for (const std::string_view line : split_at(cgroup, '\n')) {
    // "0::/user.slice" or "4:cpu,cpuacct:/docker/1f2e". A path may have colons.
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && !names_cpu(controllers)) continue;
    std::string group(line.substr(second + 1));
    for (const std::string_view mount : split_at(mountinfo, '\n')) {
      // ID PARENT MAJOR:MINOR ROOT MOUNT OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS
      const auto words = split_at(mount, ' ');
      const auto dash = std::find(words.begin(), words.end(), "-");
      if (words.size() < 6 || words.end() - dash < 4) continue;
      const bool fits = is_v2 ? dash[1] == "cgroup2" : dash[1] == "cgroup" && names_cpu(dash[3]);
      if (!fits) continue;
      // In a container the mount may begin at the container's group, which the path repeats.
      const std::string root(words[3]);
      if (root != "/" && (group == root || group.starts_with(root + "/"))) {
        group.erase(0, root.size());
      }
      if (group == "/") group.clear();
      found.push_back({std::string(words[4]), group, is_v2});
      break;
    }
  }
  return found;
}

/// The smallest quota, in cores, of the groups of `hierarchy`; nullopt where there is none.
/// `text_of(path)` is a file's text or nullopt.
template <typename TextOf>
[[nodiscard, gnu::cold]] std::optional<double> quota_of(const cpu_hierarchy& hierarchy,
                                                        TextOf text_of) {
  const auto number = [](std::string_view text) {
    return parse_number<double>(text.substr(0, text.find_first_of(" \n"))).value_or(-1);
  };
  std::optional<double> smallest;
  for (std::string group = hierarchy.group;; group.erase(group.rfind('/'))) {
    const std::string folder = hierarchy.mount + group;
    double quota = -1, period = -1;
    if (hierarchy.is_v2) {  // "150000 100000" or "max 100000"
      const std::string text = text_of(folder + "/cpu.max").value_or("");
      const auto space = text.find(' ');
      quota = number(text);
      if (space != std::string::npos) period = number(std::string_view(text).substr(space + 1));
    } else {
      quota = number(text_of(folder + "/cpu.cfs_quota_us").value_or(""));
      period = number(text_of(folder + "/cpu.cfs_period_us").value_or(""));
    }
    if (quota > 0 && period > 0) smallest = std::min(smallest.value_or(1e9), quota / period);
    if (group.find('/') == std::string::npos) return smallest;
  }
}

/// The quota of this process, in cores.
[[nodiscard, gnu::cold]] inline std::optional<double> own_cpu_quota() {
  std::optional<double> smallest;
  for (const cpu_hierarchy& each :
       cpu_hierarchies(file_text("/proc/self/cgroup").value_or(""),
                       file_text("/proc/self/mountinfo").value_or(""))) {
    if (const auto quota = quota_of(each, file_text)) {
      smallest = std::min(smallest.value_or(1e9), *quota);
    }
  }
  return smallest;
}

}  // namespace parx::detail
