// job_end: how a generation of a job has ended, who is to blame (verdict.hpp), and what parxrun
// says of it: a text for people, of few lines, since the whole is in report.json; and the outcome,
// a record. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/job_report.hpp"
#include "tools/parxrun/failures/verdict.hpp"
#include <parx/core/failure_record.hpp>

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

/// Who is to blame.
enum class blame { nobody, missing_nodes, all_ranks_alike, rank };

/// What follows from a job_end, found once for all that is said of it.
struct judged_end {
  const job_end& end;          ///< borrowed
  std::vector<rank_end> ends;  ///< of the ranks of all nodes, in ascending order
  blame whose = blame::nobody;
  verdict found = {};  ///< with blame::rank

  judged_end(const job_end& of);  // NOLINT(google-explicit-constructor)

  /// With blame::rank.
  [[nodiscard]] const rank_end& cause() const { return ends[found.cause]; }
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

/// What is said instead of the report where all ranks have returned the same code in silence: that
/// is the program's answer (of `grep`, or a check that found something), not a crash. Else empty.
[[nodiscard]] std::string common_answer(const std::vector<rank_end>& ends,
                                        std::string_view command);

/// The headline for a rank that failed because of `blamed`, from its record: where the flight
/// recorders do not say more.
[[nodiscard]] std::string blame_text(const failure_record& record, int blamed);

/// The headline where the blamed rank has succeeded, before others were done with it; else empty.
[[nodiscard]] std::string early_exit_text(const judged_end& judged);

/// Which rank was the cause and how the ranks have ended, and its last lines of output where these
/// are out of sight. Empty for a job that succeeded or goes on.
[[nodiscard]] std::string report_text(const judged_end& judged);

[[nodiscard]] job_outcome outcome_of(const judged_end& judged);

}  // namespace parx::detail
