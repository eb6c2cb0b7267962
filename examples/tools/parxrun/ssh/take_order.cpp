#include "tools/parxrun/ssh/take_order.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI::detail {

std::optional<agent_order> take_order(const std::vector<std::string>& words) {
  if (words.size() != 2 || words[1] != agent_flag) return std::nullopt;
  std::string line;
  char byte = 0;
  // Not a byte more than the line.
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || byte == '\n') break;
    line.push_back(byte);
  }
  std::optional<agent_order> order;
  try {
    order = order_from_text(line);
  } catch (const json::error&) {
    throw_usage(
        "{} is for the parxrun that --hosts starts: another version, or no parxrun, has "
        "started this one",
        agent_flag);
  }
  for (const auto& [name, value] : order->variables) ::setenv(name.c_str(), value.c_str(), 1);
  require(::chdir(order->folder.c_str()) == 0,
          "the folder {} cannot be entered on host {} ({}): it must be there under the same name, "
          "on a shared file system or as a copy",
          order->folder, host_name(), errno_text(errno));
  // No rank reads what its agent is told.
  order->input = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.get(), STDIN_FILENO);
  return order;
}

}  // namespace parx::detail
