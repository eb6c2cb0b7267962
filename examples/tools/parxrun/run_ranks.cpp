// What parxrun refuses, and which kind of it this process is.
#include "tools/parxrun/run_ranks.hpp"

#include <parx/core/check.hpp>
#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI {

int run_ranks(const agent_options& options) {
  require(options.ranks >= 1, "-n {}: a job has at least one rank", options.ranks);
  require(options.ranks <= most_ranks_of_node, "-n {}: more than {} ranks on one host",
          options.ranks, most_ranks_of_node);
  const bool keeps_only = options.nodes.role == coordinator_role::only;
  require(!options.command.empty() || (keeps_only && !options.by_ssh),
          "there is no program to run: parxrun -n 4 ./program");
  require(options.grace.count() >= 0, "--grace: the time cannot be negative");
  fill_standard_descriptors();
  return keeps_only ? detail::run_coordinator_process(options) : detail::run_agent(options);
}

}  // namespace parx
