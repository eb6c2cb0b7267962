// The environment that parxrun gives a rank: a pure function of its own environment and the job.
//
// A rank gets PARX_* for parx programs and torchrun's names for all others. The variables by which
// an outer launcher describes parxrun itself are removed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <parx/core/env.hpp>
#include <parx/core/socket_address.hpp>

namespace parx::inline PARX_ABI::detail {

/// What this process may use, divided among its ranks: the cores of its mask, or the quota of its
/// control groups where that is less.
[[nodiscard]] int threads_per_rank(int ranks);

/// Where the ranks of one node are in their job.
struct rank_placement {
  int first_rank = 0;
  int world_size = 0;  ///< 0: the ranks of this node are all
  int node_rank = 0;
  int nodes = 1;
  int generation = 1;
  std::string coordinator = {};  ///< of all its generations; empty where there are none
  int restarts = 0;              ///< after failures, so far
  int most_restarts = 0;
};

/// The settings that all ranks of one start share on this node.
struct local_job {
  std::string host = loopback_address();  ///< of parx's store
  int ranks = 1;                          ///< on this node
  std::uint16_t port = 0;                 ///< of parx's store
  /// Where rank 0 of a program that is not of parx listens; empty and 0: as above.
  std::string other_host = {};
  std::uint16_t other_port = 0;
  std::string run_id;
  std::string job_id = {};   ///< of all generations; empty: run_id
  std::string secret_file;   ///< the file with the job's secret; empty where there is none
  std::string secret;        ///< the secret itself, where it cannot be in a file
  bool keeps_store = false;  ///< parxrun keeps the job's store, instead of rank 0
  int threads_per_rank = 1;  ///< becomes OMP_NUM_THREADS where that is unset
  int threads = 0;           ///< as the user has asked; 0: has not
  std::string role = "default";
  rank_placement place = {};
};

/// `error_file`: where the rank may leave the record of its failure; empty: nowhere.
[[nodiscard]] environment rank_variables(environment env, const local_job& job, int rank,
                                         const std::string& error_file = {});

}  // namespace parx::detail
