// secret: the job's secret in parxrun: by which the parxrun of its nodes know each other, and the
// file in which each passes it to its ranks.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "tools/parxrun/nodes/job_nodes.hpp"
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hmac.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/launch/detail/job_secret.hpp>

namespace parx::inline PARX_ABI::detail {

/// A fresh one where this process alone passes it on, else the user's, else the one that all of a
/// user's hosts find in the home directory. Empty where there is none; `say` gets the reason.
/// Throws as secret_in() does.
template <typename Say>
[[nodiscard]] std::string secret_of_nodes(const job_nodes& nodes, const environment& env, Say say) {
  if (nodes.is_alone()) return why_no_hmac().empty() ? random_hex() : std::string();
  const environment with = with_secret(env);
  if (const auto given = env_string(with, "PARX_SECRET")) return *given;
  if (!why_no_hmac().empty()) return {};
  launch_env job;
  job.started_by = launcher::slurm;
  job.world_size = nodes.most;
  job.local_world_size = env_string(env, "PARX_HOST_ID") ? job.world_size : 1;
  std::string why_not;
  std::string secret = derived_secret(job, env, why_not);
  if (secret.empty() && nodes.role != coordinator_role::no) {
    say(
        formatted("this job has no secret{}: whoever reaches {} can join it. Give all parxrun the "
                  "same PARX_SECRET, or PARX_SECRET_FILE",
                  why_not, with_port(nodes.host, nodes.port)));
  }
  return secret;
}

/// A memfd that parxrun keeps open and only its user may read, named by its path under /proc.
/// Unlike an environment variable it is not inherited by the processes that a rank starts, and
/// unlike a file on disk it disappears with parxrun, however that ends.
class secret_file {
 public:
  explicit secret_file(const std::string& secret)
      : file_(::memfd_create("parx-secret", MFD_CLOEXEC)) {
    const bool made = file_.valid() && ::fchmod(file_.get(), 0600) == 0 &&
                      write_all(file_.get(), secret).reason == 0;
    if (!made) return;
    const std::string name = formatted("/proc/{}/fd/{}", ::getpid(), file_.get());
    if (descriptor(::open(name.c_str(), O_RDONLY | O_CLOEXEC)).valid()) path_ = name;
  }

  /// Empty where the file cannot be made or opened, for instance in a sandbox.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  descriptor file_;
  std::string path_;
};

}  // namespace parx::detail
