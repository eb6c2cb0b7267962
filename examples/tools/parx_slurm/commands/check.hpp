// For parx_slurm: "check", whether the nodes of a job are fit for it, before it is started.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/options.hpp"
#include "tools/common/container.hpp"
#include "tools/common/held_signals.hpp"
#include "tools/common/host_facts.hpp"
#include "tools/parx_slurm/copy_failure.hpp"
#include "tools/parx_slurm/nodes/time_limit.hpp"
#include "tools/parx_slurm/preflight/preflight.hpp"
#include "tools/common/finding.hpp"

namespace examples {

/// What is asked of each node, and of which job.
struct check_options {
  std::string job;  ///< Slurm's number of it
  std::vector<std::string> nodes;
  std::string program;  ///< an absolute path, or a name in the image; empty: none
  parx::slurm::container box;
  std::vector<std::string> needs;
  std::vector<std::string> arguments;  ///< of the program, that name what is here
  std::string output;
  std::vector<std::string> imports;
  std::string python;
  parx::slurm::host_needs takes;
};

struct check_result {
  std::vector<parx::slurm::host_facts> facts;
  std::vector<parx::slurm::finding> found;
};

void add_check_flags(cxxopts::Options& options);

/// The container of a program and its arguments. It sees the working directory, the program's
/// folder, what the arguments name and `paths`, as far as there is such a thing here; of a path
/// that is still to be made, the folder above it.
parx::slurm::container container_of(const std::string& image,
                                    const std::vector<std::string>& command,
                                    std::vector<std::string> paths);

/// Throws parx::usage_error for a --container that is not here, where no check of the nodes would
/// tell. A folder is one, too: an image unpacked.
void require_image(const std::string& image);

/// The job and its nodes: that of --jobid, else the one in which this runs.
void find_job(const std::string& asked, check_options& options);

check_options check_options_of(const cxxopts::ParseResult& given,
                               const std::vector<std::string>& command);

/// Removes what was sent to the nodes. A node that does not answer keeps it until it does
/// (remove_stale()).
void remove_from_nodes(const check_options& options, const std::vector<std::string>& paths,
                       std::vector<std::string> silent);

/// The srun line that asks all nodes. parx_doctor is sent along, so that it need not be there.
std::vector<std::string> check_command(const check_options& options);

/// What is wrong with a node to which nothing can be copied, but which answers: the room in /tmp.
parx::slurm::finding copy_finding(const std::string& job, const parx::slurm::copy_failure& failure);

/// Asks all nodes and judges; gives up when one of `signals` waits. Prints the command.
check_result check_nodes(const check_options& options, const parx::slurm::held_signals& signals);

/// A line for each node, a sentence for each fault, and what to do about all of them.
void print_check(const check_options& options, const check_result& result);

/// Returns 0, or 4 where a node is not fit.
int check(const check_options& options);

}  // namespace examples
