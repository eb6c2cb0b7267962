#include "tools/parxrun/ranks/missing_instructions.hpp"

#include <csignal>

namespace parx::inline PARX_ABI::detail {

std::string missing_instructions(const exit_status& status, const std::vector<std::string>& command,
                                 const environment& env) {
  if (status.shell_code() != 128 + SIGILL) return {};
  return missing_instructions(command, env, has_instructions);
}

}  // namespace parx::detail
