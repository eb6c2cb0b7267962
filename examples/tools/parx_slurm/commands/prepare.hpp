// For parx_slurm: "prepare", what a program can make on the login node before its job.
#pragma once

#include <string>
#include <vector>

namespace examples {

/// Runs the program here, by one process, with --prepare. Returns its exit code.
int prepare(std::vector<std::string> command);

}  // namespace examples
