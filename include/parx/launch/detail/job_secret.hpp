// job_secret: where a rank gets its job's secret from.
//
// From PARX_SECRET; from the file named by PARX_SECRET_FILE, which parxrun sets; or, under srun,
// from ~/.config/parx/secret, which is made once per user. The latter only where all ranks are on
// one host, or where the home directory is on a file system that hosts share. The job's key is
// derived from the secret and the job's run id, so jobs of one user do not trust each other. A file
// with a secret must belong to this user and be inaccessible to others (0600), or it is refused.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include <parx/core/check.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/file_limit.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hmac.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/launch/launch_env.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::size_t least_secret = 16;  ///< characters; a shorter one causes a warning
inline constexpr std::size_t longest_secret = 4096;  ///< a longer file is probably not a secret

/// The secret in a file, without white space at its end. Throws usage_error where others may read
/// the file or it is empty or not text, errc::io where it cannot be read.
[[nodiscard, gnu::cold]] inline std::string secret_in(const std::string& path) {
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file.valid() || ::fstat(file.get(), &about) != 0) {
    throw_error(errc::io, "the job's secret cannot be read from {}: {}", path, errno_text(errno));
  }
  require(S_ISREG(about.st_mode) && about.st_uid == ::geteuid() && (about.st_mode & 077) == 0,
          "the job's secret is not taken from {}: it must be a file of this user's that nobody "
          "else may read or write; chmod 600 it",
          path);
  require(about.st_size <= static_cast<off_t>(longest_secret),
          "the job's secret is not taken from {}: it has {} bytes, and a secret at most {}", path,
          about.st_size, longest_secret);
  std::string text = text_of_file(file).value_or("");
  require(text.find('\0') == std::string::npos, "the job's secret in {} is no text", path);
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  require(!text.empty(), "the job's secret in {} is empty", path);
  return text;
}

/// Whether a path is on a network file system.
[[nodiscard]] inline bool is_shared_among_hosts(const std::string& path) {
  struct statfs about {};
  if (::statfs(path.c_str(), &about) != 0) return false;
  // NFS, Lustre, GPFS, BeeGFS, Ceph, PanFS, AFS, SMB2, CIFS, 9P: statfs(2) and their sources.
  for (const unsigned long type :
       {0x6969UL, 0x0bd00bd0UL, 0x47504653UL, 0x19830326UL, 0x00c36400UL, 0xaad7aaeaUL,
        0x5346414fUL, 0xfe534d42UL, 0xff534d42UL, 0x01021997UL}) {
    if (static_cast<unsigned long>(static_cast<unsigned>(about.f_type)) == type) return true;
  }
  return false;
}

/// The secret of this user, made where there is none yet. Throws as secret_in() does.
[[nodiscard, gnu::cold]] inline std::string secret_of_user(const std::string& home) {
  // By mkdir(2): <filesystem> would cost every program half a second of compile time.
  const std::string settings = home + "/.config";
  const std::string folder = settings + "/parx";
  const std::string path = folder + "/secret";
  if (::access(path.c_str(), F_OK) == 0) return secret_in(path);
  for (const std::string& each : {settings, folder}) ::mkdir(each.c_str(), 0777);
  // Many ranks may do this at once: the first link() wins, and no rank reads a partial secret.
  std::string fresh = folder + "/secret.XXXXXX";
  const descriptor file(::mkostemp(fresh.data(), O_CLOEXEC));  // 0600
  const std::string text = random_hex() + "\n";
  const int unwritten = file.valid() ? write_all(file.get(), text).reason : errno;
  const bool linked =
      unwritten == 0 && (::link(fresh.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int failure = unwritten != 0 ? unwritten : errno;
  if (file.valid()) ::unlink(fresh.c_str());
  if (!linked) {
    throw_error(errc::io, "no secret can be kept in {}: {}", path, errno_text(failure));
  }
  return secret_in(path);
}

/// `env` with PARX_SECRET set from the file of PARX_SECRET_FILE. Throws as secret_in() does.
[[nodiscard, gnu::cold]] inline environment with_secret(environment env) {
  if (env_string(env, "PARX_SECRET")) return env;
  if (const auto path = env_string(env, "PARX_SECRET_FILE")) {
    env.insert_or_assign("PARX_SECRET", secret_in(*path));
  }
  return env;
}

/// The user's secret, for a job of srun that has none of its own. Empty, with the reason in
/// `why_not`, where it cannot be used.
[[nodiscard, gnu::cold]] inline std::string derived_secret(const launch_env& job,
                                                           const environment& env,
                                                           std::string& why_not) {
  const std::string home = env_string(env, "HOME").value_or("");
  if (job.started_by != launcher::slurm || home.empty()) return {};
  const bool on_one_host = job.local_world_size == job.world_size;
  if (!on_one_host && !is_shared_among_hosts(home)) {
    why_not = formatted(" (none is made, since {} is not known to be shared among hosts)", home);
    return {};
  }
  if (!why_no_hmac().empty()) return {};
  try {
    return secret_of_user(home);
  } catch (const std::exception& failure) {
    why_not = formatted(" (none is made: {})", failure.what());
    return {};
  }
}

}  // namespace parx::detail
