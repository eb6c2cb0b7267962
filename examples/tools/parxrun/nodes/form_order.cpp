#include "tools/parxrun/nodes/form_order.hpp"

#include "tools/parxrun/nodes/agent_channel.hpp"

namespace parx::inline PARX_ABI::detail {

json::object to_json(const form_order& order) {
  return {{"generation", order.generation},   {"restarts", order.restarts},
          {"first_rank", order.first_rank},   {"world_size", order.world_size},
          {"node_rank", order.node_rank},     {"nodes", order.nodes},
          {"goes_on", order.goes_on},         {"keeper", order.keeper},
          {"run_id", order.run_id},           {"master_host", order.master_host},
          {"master_port", order.master_port}, {"store_port", order.store_port}};
}

form_order form_from_json(const json::value& text, int ranks) {
  form_order order{.generation = text.as<int>("generation"),
                   .restarts = text.as<int>("restarts"),
                   .first_rank = text.as<int>("first_rank"),
                   .world_size = text.as<int>("world_size"),
                   .node_rank = text.as<int>("node_rank"),
                   .nodes = text.as<int>("nodes"),
                   .goes_on = text.as<bool>("goes_on"),
                   .keeper = text.as<std::string>("keeper"),
                   .run_id = text.as<std::string>("run_id"),
                   .master_host = text.as<std::string>("master_host"),
                   .master_port = text.as<std::uint16_t>("master_port"),
                   .store_port = text.as<std::uint16_t>("store_port")};
  if (order.generation < 1 || order.restarts < 0 || order.first_rank < 0 ||
      order.first_rank > order.world_size - ranks || order.node_rank < 0 ||
      order.node_rank >= order.nodes) {
    throw channel_error("it is a parxrun of another version");
  }
  return order;
}

}  // namespace parx::detail
