#include "tools/parxrun/nodes/keeper_options.hpp"

#include <parx/store/tcp_server.hpp>

namespace parx::inline PARX_ABI::detail {

keeper_options keeper_options_of(const job_nodes& nodes, const std::string& secret,
                                 const environment& env) {
  return {.host = nodes.host,
          .address = narrowest_address(nodes.host),
          .id = nodes.id,
          .secret = secret,
          .encrypts = env_flag(env, "PARX_TLS").value_or(false),
          .rules = rules_of(nodes)};
}

}  // namespace parx::detail
