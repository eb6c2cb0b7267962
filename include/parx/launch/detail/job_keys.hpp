// job_keys: the keys by which the ranks of a job join it, arrive and depart, in the store; parxrun,
// which may keep that, reads some of them. Other keys are where they are used: a rank's record
// (peer_directory.hpp), how a rank failed or was lost (failure_record.hpp), that it left and what
// it waits for (job.hpp), and the token of the links (endpoint.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

/// The prefix of all keys of a job, so that two jobs can use one store.
[[nodiscard]] inline std::string job_prefix(std::string_view run_id) {
  return formatted("parx/{}", run_id);
}

namespace keys {

/// Within that prefix: set by the process that joins as `rank`.
[[nodiscard]] inline std::string claim(int rank) { return formatted("claim/{}", rank); }
/// Set by the store's server once that process has gone.
[[nodiscard]] inline std::string gone(int rank) { return claim(rank) + "/gone"; }
// Agreed on: what the first rank has, a line break, and its number.
inline constexpr const char* world_size = "world_size";
inline constexpr const char* program = "program";

inline constexpr const char* arrived = "arrived";  ///< counts them
inline constexpr const char* ready = "ready";      ///< all have arrived
inline constexpr const char* met = "met";          ///< counts ranks that have read all records
inline constexpr const char* all_met = "all_met";
inline constexpr const char* recorder = "recorder";  ///< a random name of this start

/// Counts the ranks that have left since the last of `rounds` of agreement.
[[nodiscard]] inline std::string leavers(int rounds) { return formatted("leavers/{}", rounds); }
inline constexpr const char* all_left = "all left";

/// Of the numbers of starts, see store_generation.hpp.
[[nodiscard]] inline std::string starts_prefix(std::string_view job) {
  return job_prefix(job) + "/starts";
}
inline constexpr const char* number = "number";  ///< of the last start
inline constexpr const char* asked = "asked";    ///< counts the questions for it
[[nodiscard]] inline std::string answer(std::int64_t question) {
  return formatted("answer/{}", question);
}

/// Within the job's prefix: one round of agreement after a loss, see survivors.hpp.
[[nodiscard]] inline std::string round_prefix(int round) { return formatted("shrink/{}", round); }
inline constexpr const char* members = "members";  ///< see ranks_from()
[[nodiscard]] inline std::string ready_as(int rank) { return formatted("ready/{}", rank); }
inline constexpr const char* outcome = "outcome";  ///< "formed" or "again"

}  // namespace keys

/// For tcp_store_server_options: the prefix of the claims.
[[nodiscard]] inline std::string presence_keys(std::string_view run_id) {
  return job_prefix(run_id) + "/claim/";
}

/// The value of keys::members.
[[nodiscard]] inline std::vector<int> ranks_from(const std::string& text) {
  std::vector<int> ranks;
  for (std::size_t at = 0; at < text.size(); at = text.find(' ', at) + 1) {
    ranks.push_back(std::stoi(text.substr(at)));
    if (text.find(' ', at) == std::string::npos) break;
  }
  return ranks;
}

}  // namespace parx::detail
