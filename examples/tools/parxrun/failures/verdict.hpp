// verdict: which rank of a failed job is the cause, from how the ranks ended and from the records
// that they have left. Pure; sentences play no part in it.
//
// The first rank to end is not always the cause: a rank that lost its peer may end before the
// peer's own end is noticed, and a rank that timed out waited for another one. A rank that was
// killed leaves no record, and its peers' records blame it. A rank that ended by itself without a
// record is no parx program, or could not write one (a full disk): it is the cause if another rank
// blames it, or if nobody blames anybody.
#pragma once

#include <cstddef>
#include <vector>

#include "tools/common/job_report.hpp"

namespace parx::inline PARX_ABI::detail {

struct verdict {
  std::size_t cause = 0;  ///< the index of the rank whose failure is reported
  /// The rank that `cause` blames for its failure; -1: it failed by itself.
  int blamed = -1;
};

/// At least one of `ends` must have failed by itself.
[[nodiscard]] verdict judge(const std::vector<rank_end>& ends);

}  // namespace parx::detail
