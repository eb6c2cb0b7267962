// job_report: what the first node's parxrun prints of a job over several nodes that has not ended
// well. Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/parxrun/failures/verdict.hpp"
#include "tools/parxrun/nodes/node_report.hpp"

namespace parx::inline PARX_ABI::detail {

/// How the last generation of a job has ended.
struct job_end {
  std::vector<node_report> reports;  ///< of the nodes that could send one
  std::string command;               ///< of the ranks; empty where no node has come
  std::string loss;                  ///< why a node is not among them; empty: none was lost
  /// The first reason, where there are no reports: a sentence, or how where it was `told`.
  std::string why;
  bool told = false;                 ///< somebody has told a parxrun to end the job
  std::vector<std::string> unheard;  ///< the nodes that have sent no report of their ranks
  int code = 0;
};

/// The headline where the cause blames another rank. The flight recorders of other nodes are not
/// read.
[[nodiscard]] std::string divergence_of(const verdict& found, const std::vector<rank_end>& ends);

/// Empty for a job that succeeded.
[[nodiscard]] std::string report_text(const job_end& end);

}  // namespace parx::detail
