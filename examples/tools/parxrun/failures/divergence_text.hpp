// divergence_text: which rank called something else than the others, from a failed job's flight
// recorders.
//
// Where ranks call different operations, or one does not enter a call, the first process to fail is
// usually not the one to blame: its message names the ranks that it waited for. The records show
// which rank diverged. Pure but for readable_logs() and divergence_headline(), which read files.
#pragma once

#include <string>
#include <vector>

#include "tools/common/flight/divergence.hpp"
#include "tools/parxrun/failures/job_end.hpp"
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

/// The recorders in a directory; none if there is none, or it cannot be read.
[[nodiscard]] std::vector<flight_log> readable_logs(const std::string& directory);

/// "broadcast of 8 float32 with root 0 at train.cpp:88 (call #5)".
[[nodiscard]] inline std::string numbered(const flight_record& record) {
  return formatted("{} (call #{})", describe(record.call), record.call.number());
}

/// "rank 3 called ..., where the others called ..."; empty where all ranks called the same.
[[nodiscard]] std::string differing_calls_text(const flight_divergence& found);

/// The first operation that ranks called differently, as a sentence; empty where there is none.
[[nodiscard]] std::string differing_calls_text(const std::vector<flight_log>& logs);

/// The first operation that ranks called differently, or else which rank did not enter or finish
/// one; empty where no rank stands out. `stopped` are the ranks whose processes were stopped
/// (SIGSTOP) when the job failed.
[[nodiscard]] std::string divergence_text(const std::vector<flight_log>& logs,
                                          const std::vector<int>& stopped);

/// The headline for a job whose cause is a rank that failed because of others: which rank left
/// early or diverged, by the recorders in a directory. Empty where it failed by itself or that is
/// not known.
[[nodiscard]] std::string divergence_headline(const judged_end& judged,
                                              const std::string& recorders,
                                              const std::vector<int>& stopped);

}  // namespace parx::detail
