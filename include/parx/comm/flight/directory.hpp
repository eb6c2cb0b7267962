// directory: where the flight recorders of a job are stored. PARX_RECORDER=DIR keeps them there;
// otherwise they are in a directory per job, which is removed when the job succeeds. Other users of
// the machine can neither read the files nor replace them.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <parx/comm/flight/layout.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>

namespace parx::inline PARX_ABI {

enum class flight_files : std::uint8_t { kept, removed_after_success };

/// The directory of a job's files; if empty, nothing is recorded.
struct flight_place {
  std::string directory;
  flight_files files = flight_files::kept;
};

/// Distinguishes one start of a job from others on the same hosts.
[[nodiscard]] inline std::string name_of_start(std::string_view run_id, std::string_view host,
                                               std::uint16_t port) {
  return formatted("{}|{}|{}", run_id, host, port);
}

/// By PARX_RECORDER: a directory, "off", or unset for a directory named by `start`, the result of
/// name_of_start().
[[nodiscard]] inline flight_place find_flight_place(const environment& env,
                                                    std::string_view start) {
  const std::string given = env_string(env, "PARX_RECORDER").value_or("");
  if (given == "off") return {};
  if (!given.empty()) return {given, flight_files::kept};
  std::string base = env_string(env, "XDG_RUNTIME_DIR").value_or("");
  if (base.empty() || ::access(base.c_str(), W_OK | X_OK) != 0) base = "/tmp";
  return {formatted("{}/parx-flight-{}-{:016x}", base, ::geteuid(), detail::fnv1a(start)),
          flight_files::removed_after_success};
}

namespace detail {

[[nodiscard]] inline std::string flight_file_name(int rank) {
  return formatted("rank_{}{}", rank, flight_suffix);
}

/// The names of the recorders in a directory, in no order; none if it cannot be read.
[[nodiscard]] inline std::vector<std::string> flight_file_names(const std::string& directory) {
  std::vector<std::string> names;
  DIR* const entries = ::opendir(directory.c_str());
  if (entries == nullptr) return names;
  while (const dirent* const entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name.starts_with("rank_") && name.ends_with(flight_suffix)) names.emplace_back(name);
  }
  ::closedir(entries);
  return names;
}

/// Opens the directory and makes it if it is missing. Not valid, with errno, if another user could
/// write into it.
[[nodiscard]] inline descriptor open_flight_directory(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return {};
  descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat found {};
  if (!opened.valid() || ::fstat(opened.get(), &found) != 0) return {};
  if (found.st_uid != ::geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    errno = EPERM;
    return {};
  }
  return opened;
}

/// Makes an empty file of mode 0600; one that an earlier job left is replaced. Not valid, with
/// errno, if it cannot be made.
[[nodiscard]] inline descriptor make_flight_file(const std::string& directory,
                                                 const std::string& name) {
  // Meanwhile a job that ends may remove the directory, and another may take the name.
  for (int attempt = 0; attempt < 10; ++attempt) {
    const descriptor folder = open_flight_directory(directory);
    if (!folder.valid()) return {};
    ::unlinkat(folder.get(), name.c_str(), 0);
    descriptor file(::openat(folder.get(), name.c_str(),
                             O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file.valid() || (errno != EEXIST && errno != ENOENT)) return file;
  }
  return {};
}

/// Whether a file is of that job and its rank has left the job without failure.
[[nodiscard]] inline bool has_left(const std::string& path, std::uint64_t job) {
  const descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  flight_header header;
  return file.valid() && ::pread(file.get(), &header, sizeof header, 0) ==
                             static_cast<ssize_t>(sizeof header) &&
         header.job == job && header.ending == flight_ending::left;
}

/// Removes the directory and all recorders in it.
inline void clear_flight_directory(const std::string& directory) {
  for (const std::string& name : flight_file_names(directory)) {
    ::unlink((directory + "/" + name).c_str());
  }
  ::rmdir(directory.c_str());
}

/// Removes a job's files and their directory, unless a rank is still running, has failed or was
/// killed.
inline void remove_flight_files(const std::string& directory, std::uint64_t job) noexcept try {
  for (const std::string& name : flight_file_names(directory)) {
    if (!has_left(directory + "/" + name, job)) return;
  }
  clear_flight_directory(directory);
} catch (const std::exception&) {
  // Out of memory: the files stay.
}

}  // namespace detail

}  // namespace parx
