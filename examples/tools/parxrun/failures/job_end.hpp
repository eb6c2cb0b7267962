// job_end: how a generation of a job has ended, and what parxrun says of it: a text for people and
// the outcome, a record. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/common/job_report.hpp"
#include "tools/parxrun/failures/verdict.hpp"

namespace parx::inline PARX_ABI::detail {

struct job_end {
  std::vector<node_report> reports = {};  ///< of the nodes that could send one
  std::string command = {};               ///< of the ranks; empty where no node has come
  int world_size = 0;
  int generation = 1;
  int restarts = 0;       ///< with the one that follows
  bool goes_on = false;   ///< another generation follows
  std::string loss = {};  ///< why a node is not among them, or too few are; empty: all are
  std::string lost_node = {};
  /// The first reason, where there are no reports: a sentence, or how where it was `told`.
  std::string why = {};
  bool told = false;                      ///< somebody has told a parxrun to end the job
  std::vector<std::string> unheard = {};  ///< the nodes that have sent no report of their ranks
  int code = 0;
  std::string killed = {};  ///< the end of a sentence: which ranks had not ended in time
  /// The headline in place of the cause, by the flight recorders; empty: by the ranks' records.
  std::string divergence = {};
};

/// The report of a node with many ranks, with less of each, so that it stays one text.
[[nodiscard]] node_report shortened(node_report report);

/// Whether there are reports, and all ranks of them have saved their work.
[[nodiscard]] bool all_have_saved(const std::vector<node_report>& reports);

[[nodiscard]] bool any_failed_by_itself(const std::vector<rank_end>& ends);

/// For job_end::killed: which ranks have not ended within `grace` after parxrun was told to stop;
/// no `grace` where it was told twice. Empty where all have.
[[nodiscard]] std::string killed_text(const std::vector<rank_end>& ends,
                                      std::optional<std::chrono::milliseconds> grace);

/// Lines about those of `ends` that were lost before others have succeeded without them.
[[nodiscard]] std::string losses_text(const std::vector<rank_end>& ends);

/// The ranks of all nodes, in ascending order.
[[nodiscard]] std::vector<rank_end> ends_of(const std::vector<node_report>& reports);

/// Empty for a job that succeeded or goes on.
[[nodiscard]] std::string report_text(const job_end& end);

[[nodiscard]] job_outcome outcome_of(const job_end& end);

}  // namespace parx::detail
