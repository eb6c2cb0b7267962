// rank_variables: the environment that parxrun gives a rank: its own, with what the job and the
// rank's place in it add, change and remove.
//
// A rank gets PARX_* for parx programs and torchrun's names for all others. The variables by which
// an outer launcher describes parxrun itself are removed.
#pragma once

#include <cstdint>
#include <string>

#include "tools/parxrun/nodes/messages.hpp"
#include "tools/parxrun/run_ranks.hpp"
#include <parx/core/env.hpp>

namespace parx::inline PARX_ABI::detail {

/// The settings that all ranks of one generation share on this node.
struct local_job {
  std::string host;        ///< of parx's store
  std::uint16_t port = 0;  ///< of parx's store
  std::string other_host;  ///< where rank 0 of a program that is not of parx listens
  std::uint16_t other_port = 0;
  int ranks = 1;          ///< on this node
  int most_restarts = 0;  ///< of the job, after failures
  std::string run_id;
  std::string job_id;        ///< of all generations
  std::string secret_file;   ///< the file with the job's secret; empty where there is none
  std::string secret;        ///< the secret itself, where it cannot be in a file
  bool keeps_store = false;  ///< parxrun keeps the job's store, instead of rank 0
  int threads_per_rank = 1;  ///< becomes OMP_NUM_THREADS where that is unset
  int threads = 0;           ///< as the user has asked; 0: has not
  std::string role = "default";
  rank_placement place;

  /// `nodes` are those of the job, whose host and id are known by now. `secret_file` is where the
  /// ranks find the job's secret; empty where it is passed on as it is. Asks how many cores this
  /// process may use.
  [[nodiscard]] static local_job of(const form_order& form, const job_nodes& nodes,
                                    const agent_options& options, const std::string& secret_file,
                                    const std::string& secret);
};

/// Pure. `error_file`: where the rank may leave the record of its failure; empty: nowhere.
[[nodiscard]] environment rank_variables(environment env, const local_job& job, int rank,
                                         const std::string& error_file = {});

}  // namespace parx::detail
