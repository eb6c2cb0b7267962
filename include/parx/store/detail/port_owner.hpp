// Who listens on a port: for the error message of a port that is in use.
//
// /proc/net/tcp names the socket's inode, the links in /proc/<pid>/fd tell who holds it. Only the
// processes of the same user (or all, for root) can be looked into.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace parx::detail {

/// The inode of the socket that listens on `port`, from the text of /proc/net/tcp or tcp6; 0 where
/// none does. Columns: number, local address, remote address, state (0A: listening), queues, timer,
/// retransmits, user, timeout, inode.
[[nodiscard]] inline std::uint64_t listening_inode(std::string_view table, std::uint16_t port) {
  const std::string wanted = fmt::format(":{:04X}", port);
  std::istringstream lines{std::string(table)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream columns(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout;
    std::uint64_t inode = 0;
    columns >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
        timeout >> inode;
    if (columns && state == "0A" && local.ends_with(wanted)) return inode;
  }
  return 0;
}

[[nodiscard]] inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// "process 4711 (python3 train.py)", or nothing where /proc does not show it.
[[nodiscard]] inline std::optional<std::string> port_owner(std::uint16_t port) {
  namespace fs = std::filesystem;
  std::uint64_t inode = listening_inode(file_text("/proc/net/tcp"), port);
  if (inode == 0) inode = listening_inode(file_text("/proc/net/tcp6"), port);
  if (inode == 0) return std::nullopt;
  const std::string wanted = fmt::format("socket:[{}]", inode);
  std::error_code ignored;
  for (fs::directory_iterator process("/proc", ignored), end; process != end;
       process.increment(ignored)) {
    const std::string pid = process->path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code denied;
    for (fs::directory_iterator link(process->path() / "fd", denied); !denied && link != end;
         link.increment(denied)) {
      std::error_code gone;
      if (fs::read_symlink(link->path(), gone) != wanted) continue;
      std::string command = file_text(process->path() / "cmdline").substr(0, 200);
      while (!command.empty() && command.back() == '\0') command.pop_back();
      std::replace(command.begin(), command.end(), '\0', ' ');
      return fmt::format("process {} ({})", pid, command);
    }
  }
  return std::nullopt;
}

}  // namespace parx::detail
