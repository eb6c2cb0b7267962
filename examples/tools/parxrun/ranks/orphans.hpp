// orphans: the processes that a job's ranks have started and left; parxrun adopts them.
//
// A process whose parent ends becomes a child of the nearest ancestor that asked for that
// (PR_SET_CHILD_SUBREAPER), whatever session or group it has moved to. So all that a job has
// started stays below parxrun.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/process_table.hpp>

namespace parx::inline PARX_ABI::detail {

/// Kills the processes that `find` returns, again and again until it finds none, since some may be
/// starting others. Gives up after five seconds: those of other users cannot be killed.
template <typename Find>
void kill_all(Find find) {
  const auto limit = deadline::after(std::chrono::seconds(5));
  do {
    const std::vector<process_entry> found = find();
    if (found.empty()) return;
    for (const process_entry& each : found) ::kill(each.pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  } while (!limit.passed());
}

class orphans {
 public:
  /// The children that this process has by now (of the shell that it has replaced) are not the
  /// job's.
  orphans() : own_(own_children()) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::sort(own_.begin(), own_.end());
  }

  /// `pid` is a child that this process has started itself.
  void except(pid_t pid) { own_.insert(std::lower_bound(own_.begin(), own_.end(), pid), pid); }

  /// Reaps those that have ended and returns the others.
  [[nodiscard]] std::vector<pid_t> left() const {
    std::vector<pid_t> adopted = own_children();
    std::erase_if(adopted, [&](pid_t each) {
      return is_own(each) || ::waitpid(each, nullptr, WNOHANG) == each;
    });
    return adopted;
  }

  /// Kills them and what they have started.
  void kill() const {
    const auto is_orphan = [&](const process_entry& each) {
      return each.parent == ::getpid() && !is_own(each.pid);
    };
    kill_all([&, this]() -> std::vector<process_entry> {
      if (left().empty()) return {};
      return family_of(process_table(), is_orphan);
    });
  }

 private:
  [[nodiscard]] bool is_own(pid_t pid) const {
    return std::binary_search(own_.begin(), own_.end(), pid);
  }

  std::vector<pid_t> own_;  // in ascending order
};

/// What parxrun says of orphans that outlive a job that has succeeded.
[[nodiscard]] std::string orphans_text(const std::vector<pid_t>& processes);

}  // namespace parx::detail
