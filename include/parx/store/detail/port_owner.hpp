// port_owner: which process listens on a port, for the error message about a port in use.
//
// /proc/net/tcp has the socket's inode, and the links in /proc/<pid>/fd tell which process has it
// open. Only processes of the same user (for root: all) are readable.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

/// The inode of the socket that listens on `port`, from the text of /proc/net/tcp or tcp6; 0 where
/// none does. Columns: number, local address, remote address, state (0A: listening), queues, timer,
/// retransmits, user, timeout, inode.
[[nodiscard]] inline std::uint64_t listening_inode(std::string_view table, std::uint16_t port) {
  for (std::size_t at = 0; at < table.size();) {
    const std::size_t end = std::min(table.find('\n', at), table.size());
    const std::string line(table.substr(at, end - at));
    at = end + 1;
    unsigned bound = 0;
    unsigned state = 0;
    unsigned long inode = 0;
    const int found = std::sscanf(line.c_str(), " %*d: %*[^:]:%x %*s %x %*s %*s %*s %*s %*s %lu",
                                  &bound, &state, &inode);
    if (found == 3 && state == 0x0A && bound == port) return inode;
  }
  return 0;
}

/// The names in a folder; none where it is not readable.
[[nodiscard]] inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const opened = ::opendir(folder.c_str());
  if (opened == nullptr) return names;
  while (const dirent* each = ::readdir(opened)) names.push_back(each->d_name);
  ::closedir(opened);
  return names;
}

struct process_named {
  int pid = 0;
  std::string command;  ///< "python3 train.py"
};

/// The process that listens on `port`; pid 0 where /proc does not show it.
[[nodiscard]] inline process_named port_owner(std::uint16_t port) {
  std::uint64_t inode = 0;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    if (inode == 0) inode = listening_inode(file_text(table).value_or(""), port);
  }
  if (inode == 0) return {};
  const std::string wanted = formatted("socket:[{}]", inode);
  for (const std::string& pid : names_in("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string open_files = formatted("/proc/{}/fd/", pid);
    for (const std::string& number : names_in(open_files)) {
      char target[64];
      const auto length = ::readlink((open_files + number).c_str(), target, sizeof target);
      if (length < 0 || wanted != std::string_view(target, static_cast<std::size_t>(length))) {
        continue;
      }
      std::string command = file_text(formatted("/proc/{}/cmdline", pid)).value_or("");
      command.resize(std::min<std::size_t>(command.size(), 200));
      while (!command.empty() && command.back() == '\0') command.pop_back();
      std::replace(command.begin(), command.end(), '\0', ' ');
      return {std::atoi(pid.c_str()), std::move(command)};
    }
  }
  return {};
}

}  // namespace parx::detail
