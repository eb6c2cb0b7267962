// node_report: what an agent tells the keeper of how its ranks have ended, for the one report of
// the whole job. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tools/parxrun/failures/verdict.hpp"
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI::detail {

struct node_rank_end {
  rank_end end;
  std::string log_file;  ///< of its standard error; empty where it has none
  std::vector<std::string> last_lines;
};

struct node_report {
  std::string node;
  std::vector<node_rank_end> ranks;
  std::string recorder;  ///< directory of the node's flight recorders; empty where there is none
  std::string reason;    ///< why the first failed rank was killed, where that is known

  [[nodiscard]] bool all_have_saved() const {
    return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [](const node_rank_end& each) {
      return each.end.status.has_saved();
    });
  }
};

/// The report of a node with many ranks has less of each, so that it stays one text.
[[nodiscard]] json::value to_json(const node_report& report);

/// Throws json::error for anything that is not from to_json().
[[nodiscard]] node_report report_from_json(const json::value& text);

/// Whether there are reports, and all ranks of them have saved their work.
[[nodiscard]] bool all_have_saved(const std::vector<node_report>& reports);

[[nodiscard]] bool any_failed_by_itself(const std::vector<rank_end>& ends);

/// The ranks of all nodes, in ascending order.
[[nodiscard]] std::vector<rank_end> ends_of(const std::vector<node_report>& reports);

}  // namespace parx::detail
