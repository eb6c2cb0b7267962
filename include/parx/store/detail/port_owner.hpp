// port_owner: which process has a port, for the error message about a port in use.
//
// /proc/net/tcp has the socket's inode, and the links in /proc/<pid>/fd tell which process has it
// open. Only processes of the same user (for root: all) are readable. A socket that is bound but
// neither listens nor is connected is in no table.
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
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI::detail {

/// A socket in /proc/net/tcp.
struct port_socket {
  std::uint64_t inode = 0;  ///< 0: none was found
  unsigned user = 0;
  bool listens = false;
};

/// The socket that has `port` at its end, from the text of /proc/net/tcp or tcp6: one that listens,
/// else one of a connection, which keeps others from listening there, too. Columns: number, local
/// address, remote address, state (0A: listening), queues, timer, retransmits, user, timeout, inode
/// (0 for one that is closing).
[[nodiscard, gnu::cold]] inline port_socket socket_at(std::string_view table, std::uint16_t port) {
  port_socket connected;
  for (std::size_t at = 0; at < table.size();) {
    const std::size_t end = std::min(table.find('\n', at), table.size());
    const std::string line(table.substr(at, end - at));
    at = end + 1;
    unsigned bound = 0, state = 0, user = 0;
    unsigned long inode = 0;
    const int found = std::sscanf(line.c_str(), " %*d: %*[^:]:%x %*s %x %*s %*s %*s %u %*s %lu",
                                  &bound, &state, &user, &inode);
    if (found != 4 || inode == 0 || bound != port) continue;
    if (state == 0x0A) return {inode, user, true};
    connected = {inode, user, false};
  }
  return connected;
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

struct port_user {
  int pid = 0;          ///< 0: /proc does not show the process
  std::string command;  ///< "python3 train.py"
  port_socket socket;   ///< which it may show even so
};

/// What has `port`, as far as /proc shows it.
[[nodiscard, gnu::cold]] inline port_user port_owner(std::uint16_t port) {
  const port_socket found = socket_at(
      file_text("/proc/net/tcp").value_or("") + file_text("/proc/net/tcp6").value_or(""), port);
  if (found.inode == 0) return {};
  const std::string wanted = formatted("socket:[{}]", found.inode);
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
      return {std::atoi(pid.c_str()), std::move(command), found};
    }
  }
  return {.pid = 0, .command = {}, .socket = found};
}

/// "it is in use by process 71 (python3 train.py). End that process, or choose another port."
[[nodiscard]] inline std::string in_use_text(const port_user& owner) {
  if (owner.pid != 0) {
    return formatted("it is in use by process {} ({}). End that process, or choose another port.",
                     owner.pid, printable(owner.command));
  }
  if (owner.socket.inode != 0) {
    return formatted("it is in use by a process of user {} that cannot be seen from here: that of "
                     "another user, or in another container. Choose another port.",
                     owner.socket.user);
  }
  return "it is in use, but /proc does not show by which process: it may have the port without "
         "listening. Choose another port.";
}

}  // namespace parx::detail
