#include "tools/parx_slurm/commands/prepare.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "common/options.hpp"
#include "common/shell_text.hpp"
#include "tools/common/run_command.hpp"
#include "tools/parx_slurm/command_line.hpp"
#include "tools/parx_slurm/commands/check.hpp"

namespace examples {

int prepare(std::vector<std::string> command) {
  parx::require(!command.empty(),
                "there is no program: parx_slurm prepare -- ./train --data news --cache tokens");
  command.front() = path_of_program(command.front());
  command.push_back("--prepare");
  fmt::print("$ {}\n", parx::slurm::shell_text(command));
  std::fflush(stdout);
  const int code = parx::slurm::run_in_foreground(command);
  if (code == 2) {
    fmt::print(stderr,
               "parx_slurm: the program must know --prepare, as train_tinybert and "
               "train_summarizer do: fill its caches, say what is in them, and end\n");
  }
  return code;
}

}  // namespace examples
