// report_file: where the records of how a job has ended go: report.json beside its logs, and a line
// of parxrun's standard error.
#pragma once

#include <cstdlib>
#include <string>

#include "tools/common/job_report.hpp"
#include "tools/parxrun/failures/job_end.hpp"
#include "tools/parxrun/ranks/console.hpp"
#include "tools/parxrun/run_ranks.hpp"

namespace parx::inline PARX_ABI::detail {

/// Writes it anew, where there is a log folder. Of many generations only the last ones keep their
/// ranks. A disk that is full loses it, not the job.
void write_report(const agent_options& options, job_report& report);

/// What there is to say of a generation that has ended, for people. Where it has failed or goes on,
/// also its outcome for programs that read the logs of jobs: of Slurm's, and of several nodes.
inline void print_end(console& to, const judged_end& judged) {
  std::string text = report_text(judged);
  const job_outcome outcome = outcome_of(judged);
  const bool matters = outcome.has_failed || outcome.goes_on;
  const bool is_read = judged.end.reports.size() + judged.end.unheard.size() > 1 ||
                       std::getenv("SLURM_JOB_ID") != nullptr;
  if (matters && is_read && !console::is_terminal(stream::err)) text += line_of(outcome);
  to.queue(stream::err).add(text);
}

}  // namespace parx::detail
