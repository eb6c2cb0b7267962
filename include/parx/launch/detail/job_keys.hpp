// The keys of a job in its store that parxrun, which may keep the store, must know too.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

/// The prefix of all keys of a job, so that two jobs can use one store.
[[nodiscard]] inline std::string job_prefix(std::string_view run_id) {
  return formatted("parx/{}", run_id);
}
/// Within that prefix: set by the process that joins as `rank`.
[[nodiscard]] inline std::string claim_key(int rank) { return formatted("claim/{}", rank); }
/// Set by the store's server once that process has gone.
[[nodiscard]] inline std::string gone_key(int rank) { return claim_key(rank) + "/gone"; }

/// For tcp_store_server_options: the prefix of the claims.
[[nodiscard]] inline std::string presence_keys(std::string_view run_id) {
  return job_prefix(run_id) + "/claim/";
}

/// Within the job's prefix: the keys of one round of agreement after a loss, see survivors.hpp.
[[nodiscard]] inline std::string round_prefix(int round) { return formatted("shrink/{}", round); }
/// The value of such a round's key "members".
[[nodiscard]] inline std::vector<int> ranks_from(const std::string& text) {
  std::vector<int> ranks;
  for (std::size_t at = 0; at < text.size(); at = text.find(' ', at) + 1) {
    ranks.push_back(std::stoi(text.substr(at)));
    if (text.find(' ', at) == std::string::npos) break;
  }
  return ranks;
}

}  // namespace parx::detail
