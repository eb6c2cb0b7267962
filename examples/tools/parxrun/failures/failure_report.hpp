// failure_report: what parxrun prints when a job fails: which rank caused it (verdict.hpp), how
// that rank and the others ended, and its last lines of output where these are out of sight. Few
// lines: the whole is in report.json. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/parxrun/failures/verdict.hpp"
#include <parx/core/failure_record.hpp>

namespace parx::inline PARX_ABI::detail {

/// What is said instead of the report where all ranks have returned the same code in silence: that
/// is the program's answer (of `grep`, or a check that found something), not a crash. Else empty.
[[nodiscard]] std::string common_answer(const std::vector<rank_end>& ends,
                                        std::string_view command);

/// The headline for a rank that failed because of `blamed`, from its record: where the flight
/// recorders do not say more.
[[nodiscard]] std::string blame_text(const failure_record& record, int blamed);

/// The headline where the blamed rank has succeeded, before others were done with it; else empty.
[[nodiscard]] std::string early_exit_text(const verdict& found, const std::vector<rank_end>& ends);

/// How a rank has ended, and when.
[[nodiscard]] std::string cause_text(const rank_end& cause);

/// The content of the report. `ends` are in rank order and include the cause.
struct job_failure {
  std::string command;
  rank_end cause;
  std::vector<rank_end> ends;
  std::string recorder = {};    ///< directory of the flight recorders; empty when there is none
  std::string divergence = {};  ///< headline in place of the cause, where that only accuses others
  std::string reason = {};      ///< why the cause was killed, where that is known
  std::string node = {};        ///< of the cause, in a job of several
};

[[nodiscard]] std::string failure_report(const job_failure& failure);

}  // namespace parx::detail
