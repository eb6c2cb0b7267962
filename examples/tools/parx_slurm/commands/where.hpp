// For parx_slurm: "where", the partition and the salloc line for a job.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "tools/common/instruction_level.hpp"
#include "tools/parx_slurm/nodes/sinfo.hpp"
#include "tools/parx_slurm/nodes/time_limit.hpp"
#include "tools/parx_slurm/nodes/where.hpp"

namespace examples {

/// Runs one of Slurm's commands and returns its output. Throws parx::error where it fails, with
/// what it says.
std::string slurm_output(const std::vector<std::string>& words);

std::vector<std::string> groups_of_this_user();

/// "2G", "500M" or a number of MB, as --mem of Slurm.
std::int64_t megabytes(const cxxopts::ParseResult& given, const std::string& flag);

/// A flag's value as a length of time. Throws parx::usage_error where it is none.
std::chrono::seconds length_of(const cxxopts::ParseResult& given, const char* flag);

void add_request_flags(cxxopts::Options& options);

/// What the program in a file was compiled for; baseline where the file does not say.
parx::slurm::instruction_level level_of_file(const std::string& path);

parx::slurm::node_request request_of(const cxxopts::ParseResult& given);

/// What the cluster has for a request, the best first; Slurm is asked for each start.
struct search_result {
  std::vector<parx::slurm::sinfo_node> nodes;
  std::vector<parx::slurm::candidate> ranked;
  std::chrono::system_clock::time_point at;
};

search_result search_nodes(const parx::slurm::node_request& request);

/// Prints the table and the line to type. Returns 0, or 3 where no partition has the nodes.
int where(const parx::slurm::node_request& request);

}  // namespace examples
