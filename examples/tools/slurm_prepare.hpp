// For parx_slurm: "prepare", what a program can make on the login node before its job.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/options.hpp"
#include "slurm_check.hpp"
#include <parx/slurm.hpp>

namespace examples {

/// Runs the program here, by one process, with --prepare. Returns its exit code.
inline int prepare(std::vector<std::string> command) {
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
