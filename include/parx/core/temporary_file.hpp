// temporary_file: a file in the folder of the one that it will replace by a rename.
//
// Its writer holds a lock on it, which the kernel releases when the process ends, however it ends.
// So the next writer of the same path can tell the files that killed processes have left, on this
// host or another, from those being written, and removes them. On a file system without locks
// nothing is removed. Safe from any thread and process.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/descriptor.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

/// A name that no other thread or process of this host uses: the counter keeps two threads of one
/// process apart, the pid two processes.
[[nodiscard]] inline std::string temporary_name(std::string_view path) {
  static std::atomic<unsigned> counter{0};
  return formatted("{}.tmp.{}.{}", path, ::getpid(), counter.fetch_add(1));
}

/// Whether `name` is temporary_name(file) in some process.
[[nodiscard]] inline bool is_temporary_of(std::string_view file, std::string_view name) {
  constexpr std::string_view middle = ".tmp.";
  if (!name.starts_with(file)) return false;
  name.remove_prefix(file.size());
  if (!name.starts_with(middle)) return false;
  name.remove_prefix(middle.size());
  return name.find_first_not_of("0123456789.") == std::string_view::npos;
}

/// Removes the temporary files of `path` whose writers have died.
[[gnu::cold]] inline void remove_abandoned(const std::string& path) {
  const std::size_t file = path.find_last_of('/') + 1;  // 0 where there is no folder
  const std::string folder = file == 0 ? "./" : path.substr(0, file);
  DIR* const entries = ::opendir(folder.c_str());
  if (entries == nullptr) return;
  std::vector<std::string> found;
  while (const dirent* const entry = ::readdir(entries)) {
    if (is_temporary_of(std::string_view(path).substr(file), entry->d_name))
      found.push_back(folder + entry->d_name);
  }
  ::closedir(entries);
  for (const std::string& each : found) {
    const descriptor opened(::open(each.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (opened.valid() && ::flock(opened.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(each.c_str());
  }
}

struct temporary_file {
  std::string name;
  descriptor file;  ///< open for writing, empty; not valid where it could not be made
  descriptor life;  ///< holds the lock: to be kept until the file has its final name
  int reason = 0;   ///< the errno where it could not be made
};

/// Makes a temporary file for `path`, after removing abandoned ones.
[[nodiscard, gnu::cold]] inline temporary_file make_temporary(const std::string& path) {
  remove_abandoned(path);
  for (;;) {
    temporary_file made{.name = temporary_name(path), .file = {}, .life = {}};
    made.file = descriptor(::open(made.name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!made.file.valid() && errno == EEXIST) continue;  // another host's or container's
    if (!made.file.valid()) {
      made.reason = errno;
      return made;
    }
    // Another process may have taken it for abandoned before it was locked.
    if (::flock(made.file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) continue;
    struct stat status {};
    if (::fstat(made.file.get(), &status) == 0 && status.st_nlink == 0) continue;
    made.life = descriptor(::fcntl(made.file.get(), F_DUPFD_CLOEXEC, 0));
    return made;
  }
}

}  // namespace parx::detail
