// form_order: what the keeper tells an agent of the generation that begins, as values and on the
// wire. Pure.
#pragma once

#include <cstdint>
#include <string>

#include <parx/core/abi.hpp>
#include <parx/core/json.hpp>
#include <parx/launch/detail/agent_channel.hpp>

namespace parx::inline PARX_ABI::detail {

struct form_order {
  int generation = 0;
  int restarts = 0;    ///< of the job, so far
  int first_rank = 0;  ///< of the node
  int world_size = 0;
  int node_rank = 0;
  int nodes = 0;
  bool goes_on = false;     ///< the other ranks, where one is lost
  std::string keeper;       ///< the name of it
  std::string run_id;       ///< of the ranks
  std::string master_host;  ///< where rank 0 of a program that is not of parx listens
  std::uint16_t master_port = 0;
  std::uint16_t store_port = 0;
};

[[nodiscard]] inline json::object to_json(const form_order& order) {
  return {{"generation", order.generation},   {"restarts", order.restarts},
                      {"first_rank", order.first_rank},   {"world_size", order.world_size},
                      {"node_rank", order.node_rank},     {"nodes", order.nodes},
                      {"goes_on", order.goes_on},         {"keeper", order.keeper},
                      {"run_id", order.run_id},           {"master_host", order.master_host},
                      {"master_port", order.master_port}, {"store_port", order.store_port}};
}

/// Of a node that has so many ranks. Throws json::error, or channel_error where the numbers do not
/// fit each other.
[[nodiscard]] inline form_order form_from_json(const json::value& text, int ranks) {
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
