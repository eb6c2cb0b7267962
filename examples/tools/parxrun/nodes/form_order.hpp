// form_order: what the keeper tells an agent of the generation that begins, as values and on the
// wire. Pure.
#pragma once

#include <cstdint>
#include <string>

#include <parx/core/abi.hpp>
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI::detail {

struct form_order {
  int generation = 0;
  int restarts = 0;    ///< of the job, so far
  int first_rank = 0;  ///< of the node
  int world_size = 0;
  int node_rank = 0;
  int nodes = 0;
  bool goes_on = false;     ///< the other ranks, where one is lost
  std::string keeper;       ///< the name of it; empty in a job without generations
  std::string run_id;       ///< of the ranks
  std::string master_host;  ///< where rank 0 of a program that is not of parx listens
  std::uint16_t master_port = 0;
  std::uint16_t store_port = 0;  ///< 0: rank 0 keeps the store, at the master's port
};

[[nodiscard]] json::object to_json(const form_order& order);

/// Of a node that has so many ranks. Throws json::error, or channel_error where the numbers do not
/// fit each other.
[[nodiscard]] form_order form_from_json(const json::value& text, int ranks);

}  // namespace parx::detail
