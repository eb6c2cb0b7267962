#include "tools/parxrun/nodes/generation_job.hpp"

namespace parx::inline PARX_ABI::detail {

local_job job_of_generation(const form_order& form, const job_nodes& nodes,
                            const agent_options& options, const std::string& secret_file,
                            const std::string& secret) {
  return {.host = nodes.host,
          .ranks = options.ranks,
          .port = form.store_port != 0 ? form.store_port : form.master_port,
          .other_host = form.master_host,
          .other_port = form.master_port,
          .run_id = form.run_id,
          .job_id = nodes.id,
          .secret_file = secret.empty() ? "" : secret_file,
          .secret = secret_file.empty() ? secret : "",
          .keeps_store = form.store_port != 0,
          .threads_per_rank = threads_per_rank(options.ranks),
          .threads = options.threads,
          .role = options.role,
          .place = {.first_rank = form.first_rank,
                    .world_size = form.world_size,
                    .node_rank = form.node_rank,
                    .nodes = form.nodes,
                    .generation = form.generation,
                    .coordinator = form.coordinator,
                    .restarts = form.restarts,
                    .most_restarts = nodes.restarts}};
}

}  // namespace parx::detail
