// directory: where the flight recorders of a job are stored. PARX_RECORDER=DIR keeps them there;
// otherwise they are in a directory per job, which is removed when the job succeeds. What failed
// jobs leave, later jobs remove. Other users of the machine can neither read the files nor replace
// them.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/flight/layout.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
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
[[nodiscard, gnu::cold]] inline flight_place find_flight_place(const environment& env,
                                                               std::string_view start) {
  const std::string given = env_string(env, "PARX_RECORDER").value_or("");
  if (given == "off") return {};
  if (!given.empty()) return {given, flight_files::kept};
  std::string base = env_string(env, "XDG_RUNTIME_DIR").value_or("");
  if (base.empty() || ::access(base.c_str(), W_OK | X_OK) != 0) base = "/tmp";
  return {formatted("{}/parx-flight-{}-{:016x}", base, ::geteuid(), detail::fnv1a(start)),
          flight_files::removed_after_success};
}

[[nodiscard]] inline std::string flight_file_name(int rank,
                                                  std::string_view suffix = flight_suffix) {
  return formatted("rank_{}{}", rank, suffix);
}

/// The names of the ranks' files in an open directory, in no order; none if it cannot be read.
[[nodiscard, gnu::cold]] inline std::vector<std::string> flight_file_names(
    const descriptor& folder, std::string_view suffix = flight_suffix) {
  std::vector<std::string> names;
  const int again = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = again < 0 ? nullptr : ::fdopendir(again);
  if (entries == nullptr) {
    if (again >= 0) ::close(again);
    return names;
  }
  while (const dirent* const entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name.starts_with("rank_") && name.ends_with(suffix)) names.emplace_back(name);
  }
  ::closedir(entries);
  return names;
}

[[nodiscard]] inline bool is_own_directory(const struct stat& directory) noexcept {
  return directory.st_uid == ::geteuid() && (directory.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}
/// Opens the directory. Not valid, with errno, if it is missing or another user could write into
/// it.
[[nodiscard]] inline descriptor find_flight_directory(const std::string& directory) {
  descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat found {};
  if (!opened.valid() || ::fstat(opened.get(), &found) != 0) return {};
  if (!is_own_directory(found)) {
    errno = EPERM;
    return {};
  }
  return opened;
}
/// The same, and makes the directory if it is missing.
[[nodiscard]] inline descriptor open_flight_directory(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return {};
  return find_flight_directory(directory);
}
/// Why the directory could not be opened, after errno.
[[nodiscard]] inline std::string flight_refusal(const std::string& directory, int reason) {
  struct stat found {};
  if (::lstat(directory.c_str(), &found) != 0) return errno_text(reason);
  if (S_ISLNK(found.st_mode)) return "its directory is a symbolic link, which is not followed";
  if (reason != EPERM || is_own_directory(found)) return errno_text(reason);
  return formatted(
      "its directory belongs to user {} and has mode {:04o}; it must belong to this "
      "process's user {}, and no other user may write to it",
      found.st_uid, found.st_mode & 07777, ::geteuid());
}

/// Keeps others from making or removing files in an open directory until `folder` is closed. Waits
/// 50 ms at most, for a process that was stopped meanwhile, and then goes on without.
inline void lock_flight_directory(const descriptor& folder) noexcept {
  for (int attempt = 0; attempt < 50; ++attempt) {
    if (::flock(folder.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    ::usleep(1000);
  }
}

/// Makes an empty file of mode 0600; one that an earlier job left is replaced. Not valid, with
/// errno, if it cannot be made.
[[nodiscard, gnu::cold]] inline descriptor make_flight_file(const std::string& directory,
                                                            const std::string& name) {
  // Meanwhile a rank that leaves may remove the directory, and another job may take the name. While
  // another rank joins and leaves over and over, most attempts find a directory that is gone.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const descriptor folder = open_flight_directory(directory);
    if (!folder.valid() && errno == ENOENT) continue;
    if (!folder.valid()) return {};
    lock_flight_directory(folder);
    ::unlinkat(folder.get(), name.c_str(), 0);
    descriptor file(::openat(folder.get(), name.c_str(),
                             O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file.valid() || (errno != EEXIST && errno != ENOENT)) return file;
  }
  return {};
}

/// Nullopt where the file in an open directory is too short or cannot be read.
[[nodiscard]] inline std::optional<flight_header> read_flight_header(const descriptor& folder,
                                                                     const std::string& name) {
  const descriptor file(
      ::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  flight_header header;
  const auto got = file.valid() ? ::pread(file.get(), &header, sizeof header, 0) : -1;
  return got == static_cast<ssize_t>(sizeof header) ? std::optional(header) : std::nullopt;
}

/// Removes the records of failures from an open directory.
inline void remove_failures(const descriptor& folder) {
  for (const std::string_view suffix : {failure_suffix, error_suffix}) {
    for (const std::string& name : flight_file_names(folder, suffix)) {
      ::unlinkat(folder.get(), name.c_str(), 0);
    }
  }
}

/// Removes the directory and all files of ranks in it, if it is this user's own.
inline void clear_flight_directory(const std::string& directory) {
  const descriptor folder = find_flight_directory(directory);
  if (!folder.valid()) return;
  for (const std::string& name : flight_file_names(folder)) {
    ::unlinkat(folder.get(), name.c_str(), 0);
  }
  remove_failures(folder);
  ::rmdir(directory.c_str());
}

/// Removes a job's files and their directory, unless a rank is still running, has failed or was
/// killed.
[[gnu::cold]] inline void remove_flight_files(const std::string& directory,
                                              std::uint64_t job) noexcept try {
  const descriptor folder = find_flight_directory(directory);
  if (!folder.valid()) return;
  // A rank that joins again at this moment makes its file before the look at it, or after the end.
  lock_flight_directory(folder);
  const std::vector<std::string> names = flight_file_names(folder);
  for (const std::string& name : names) {
    const auto header = read_flight_header(folder, name);
    if (!header || header->job != job || header->ending != flight_ending::left) return;
  }
  // No others: a rank that joins late may just have made its file.
  for (const std::string& name : names) ::unlinkat(folder.get(), name.c_str(), 0);
  ::rmdir(directory.c_str());
} catch (const std::exception&) {
  // Out of memory: the files stay.
}

/// Whether a process of a recorder in the directory still lives, or another one has its number.
[[nodiscard, gnu::cold]] inline bool has_living_rank(const std::string& directory) {
  const descriptor folder = find_flight_directory(directory);
  if (!folder.valid()) return false;
  for (const std::string& name : flight_file_names(folder)) {
    const auto header = read_flight_header(folder, name);
    const auto pid = static_cast<pid_t>(header ? header->pid : 0);
    if (pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM)) return true;
  }
  return false;
}

/// Removes what failed jobs of this user have left beside `directory`, which is about to be made:
/// directories named by find_flight_place() whose last file was made more than three days ago, and
/// all but the newest 20. Leaves those of jobs that still run.
[[gnu::cold]] inline void remove_old_flight_directories(const std::string& directory) {
  constexpr std::ptrdiff_t most = 20;
  constexpr std::time_t longest = 3 * 24 * 60 * 60;
  constexpr std::size_t digits = 16;  // of the start in the name
  const std::size_t slash = directory.rfind('/');
  if (slash == std::string::npos || directory.size() < slash + 1 + digits) return;
  const std::string base = directory.substr(0, slash);
  const std::string own = directory.substr(slash + 1);
  const std::string_view prefix = std::string_view(own).substr(0, own.size() - digits);
  std::vector<std::pair<std::time_t, std::string>> old;
  DIR* const entries = ::opendir(base.c_str());
  if (entries == nullptr) return;
  while (const dirent* const entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name.size() != own.size() || name == own || !name.starts_with(prefix) ||
        name.substr(prefix.size()).find_first_not_of("0123456789abcdef") != name.npos) {
      continue;
    }
    std::string path = formatted("{}/{}", base, name);
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
        found.st_uid != ::geteuid()) {
      continue;
    }
    old.emplace_back(found.st_mtime, std::move(path));
  }
  ::closedir(entries);
  const std::time_t now = std::time(nullptr);
  for (const auto& each : old) {
    const auto newer =
        std::count_if(old.begin(), old.end(), [&](const auto& other) { return other > each; });
    const bool is_old = newer >= most || now - each.first > longest;
    if (is_old && !has_living_rank(each.second)) clear_flight_directory(each.second);
  }
}

}  // namespace parx
