// remove_stale: removes from this node what parx_slurm has sent to it for jobs that are over.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "tools/common/sent_names.hpp"

namespace examples {

/// Removes what lies in /tmp for this user's jobs that are earlier than `own` and not among `live`:
/// jobs whose nodes could not clean up. What cannot be removed stays.
inline void remove_stale(std::int64_t own, const std::vector<std::int64_t>& live) {
  std::error_code ignored;
  std::vector<std::filesystem::path> found;
  for (std::filesystem::directory_iterator each("/tmp", ignored), end; each != end;
       each.increment(ignored)) {
    const auto job = parx::slurm::job_of_sent(each->path().filename().string());
    struct stat status {};
    const bool is_own = ::lstat(each->path().c_str(), &status) == 0 && status.st_uid == ::geteuid();
    if (!job || !is_own || *job >= own) continue;
    if (std::find(live.begin(), live.end(), *job) == live.end()) found.push_back(each->path());
  }
  for (const auto& each : found) std::filesystem::remove_all(each, ignored);
}

}  // namespace examples
