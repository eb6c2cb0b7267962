// For parx_slurm: "batch", a script for sbatch on standard output.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "tools/parx_slurm/nodes/time_limit.hpp"
#include "tools/parx_slurm/script/batch_script.hpp"

namespace examples {

void add_batch_flags(cxxopts::Options& options);

/// A script to write, and what Slurm tells of the partitions that it names.
struct batch_job {
  parx::slurm::batch_options script;
  std::string program;  ///< its path, where it can be read here and is not an image's
  std::optional<std::chrono::seconds> longest;  ///< for which they take a job; nullopt: not known
};

batch_job batch_job_of(const cxxopts::ParseResult& given, const std::vector<std::string>& command,
                       const std::vector<std::string>& written_by);

/// Prints the script. Returns 3, and prints none, where Slurm would refuse it.
int batch(const batch_job& whole);

}  // namespace examples
