// process_table: the processes of this host, as /proc lists them, and those that belong together.
#pragma once

#include <dirent.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>

namespace parx::inline PARX_ABI::detail {

struct process_entry {
  pid_t pid = 0;
  std::string name;  ///< truncated to 15 characters by the kernel
  char state = 0;
  pid_t parent = 0;
  pid_t group = 0;

  [[nodiscard]] bool is_running() const noexcept { return state != 'Z' && state != 'X'; }
};

/// Parses /proc/PID/stat: "PID (name) S PARENT GROUP ...". The name may contain any characters.
[[nodiscard, gnu::cold]] inline process_entry parse_process_stat(std::string_view text) {
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  if (open == text.npos || close == text.npos || close < open || close + 4 >= text.size())
    return {};
  std::size_t at = close + 4;
  const auto next_number = [&] {
    pid_t number = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      number = number * 10 + (text[at] - '0');
    }
    ++at;
    return number;
  };
  process_entry entry{.pid = 0, .name = std::string(text.substr(open + 1, close - open - 1)),
                      .state = text[close + 2]};
  entry.parent = next_number();
  entry.group = next_number();
  return entry;
}

/// The entry of a process; nullopt where there is none.
[[nodiscard, gnu::cold]] inline std::optional<process_entry> find_process(pid_t pid) {
  const auto text = file_text(formatted("/proc/{}/stat", pid));
  if (!text || text->empty()) return std::nullopt;
  process_entry entry = parse_process_stat(*text);
  entry.pid = pid;
  return entry;
}

/// All processes that this one can see; some may have ended since.
[[nodiscard]] inline std::vector<process_entry> process_table() {
  std::vector<process_entry> table;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
  if (folder == nullptr) return table;
  while (const dirent* const each = ::readdir(folder.get())) {
    const auto pid = parse_number<pid_t>(each->d_name);
    if (!pid) continue;
    if (auto entry = find_process(*pid)) table.push_back(std::move(*entry));
  }
  return table;
}

/// The running processes of a table for which `is_marked` holds, and all that descend from one.
template <typename Predicate>
[[nodiscard]] std::vector<process_entry> family_of(std::vector<process_entry> table,
                                                   Predicate is_marked) {
  const auto rest = std::stable_partition(table.begin(), table.end(), is_marked);
  std::vector<process_entry> family(table.begin(), rest);
  table.erase(table.begin(), rest);
  for (std::size_t next = 0; next < family.size(); ++next) {
    const pid_t parent = family[next].pid;
    std::erase_if(table, [&](const process_entry& each) {
      if (each.parent == parent) family.push_back(each);
      return each.parent == parent;
    });
  }
  std::erase_if(family, [](const process_entry& each) { return !each.is_running(); });
  return family;
}

/// The process that has started this one, the one that has started that, and so on.
[[nodiscard]] inline std::vector<pid_t> ancestors() {
  constexpr std::size_t most = 32;
  std::vector<pid_t> found;
  for (pid_t pid = ::getppid(); pid > 0 && found.size() < most;) {
    found.push_back(pid);
    const auto entry = find_process(pid);
    pid = entry ? entry->parent : 0;
  }
  return found;
}

/// The children of this process's first thread; of all its threads where the kernel has no list.
[[nodiscard]] inline std::vector<pid_t> own_children() {
  std::vector<pid_t> children;
  const auto text = file_text(formatted("/proc/self/task/{}/children", ::getpid()));
  if (!text) {
    for (const process_entry& each : process_table()) {
      if (each.parent == ::getpid()) children.push_back(each.pid);
    }
    return children;
  }
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = std::min(text->find(' ', at), text->size());
    if (const auto pid = parse_number<pid_t>(std::string_view(*text).substr(at, end - at))) {
      children.push_back(*pid);
    }
    at = end + 1;
  }
  return children;
}

}  // namespace parx::detail
