// verdict: which rank of a failed job is the cause, from how the ranks ended and from the records
// that they have left. Pure; sentences play no part in it.
//
// The first rank to end is not always the cause: a rank that lost its peer may end before the
// peer's own end is noticed, and a rank that timed out waited for another one. A rank that was
// killed leaves no record, and its peers' records blame it. A rank that ended by itself without a
// record is no parx program, or could not write one (a full disk): it is the cause if another rank
// blames it, or if nobody blames anybody.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <vector>

#include <parx/core/failure_record.hpp>
#include <parx/launch/detail/child_process.hpp>

namespace parx::inline PARX_ABI::detail {

struct rank_end {
  int rank = 0;
  pid_t pid = 0;
  exit_status status;
  bool was_signalled = false;  ///< parxrun had signalled it before it ended
  double seconds = 0;          ///< from the start of the job
  bool is_silent = false;      ///< it is known to have written nothing to standard error
  std::optional<failure_record> record = std::nullopt;  ///< what it has left of its failure

  [[nodiscard]] bool failed_by_itself() const noexcept {
    return !status.success() && !status.has_saved() && !was_signalled;
  }
};

struct verdict {
  std::size_t cause = 0;  ///< the index of the rank whose failure is reported
  /// The rank that `cause` blames for its failure; -1: it failed by itself.
  int blamed = -1;
};

/// At least one of `ends` must have failed by itself.
[[nodiscard]] inline verdict judge(const std::vector<rank_end>& ends) {
  const auto blames_another = [](const rank_end& each) {
    return each.record && each.record->kind() != failure_kind::own &&
           each.record->blamed != each.rank;
  };
  const auto is_blamed = [&](int rank) {
    return std::any_of(ends.begin(), ends.end(), [&](const rank_end& each) {
      return each.failed_by_itself() && blames_another(each) && each.record->blamed == rank;
    });
  };
  // The greatest is the cause.
  const auto weight_of = [&](const rank_end& each) {
    enum : int { none, echo, lost, accuser, unknown, echo_of, lost_one, accuser_of, own };
    const bool blamed = is_blamed(each.rank);
    int claim = own;
    if (!each.failed_by_itself()) {
      claim = none;
    } else if (!each.record) {
      if (each.status.signal == 0 && !blamed) claim = unknown;
    } else if (each.record->kind() != failure_kind::own) {
      const bool names_one = each.record->blamed >= 0;
      switch (each.record->kind()) {
        case failure_kind::told:
          claim = names_one ? echo_of : echo;
          break;
        case failure_kind::lost_peer:
          claim = names_one ? lost_one : lost;
          break;
        default:
          claim = names_one ? accuser_of : accuser;
      }
    }
    return std::tuple(claim, blamed && claim == own, each.status.signal != 0, -each.seconds);
  };
  const auto cause = std::max_element(
      ends.begin(), ends.end(),
      [&](const rank_end& a, const rank_end& b) { return weight_of(a) < weight_of(b); });
  return {static_cast<std::size_t>(cause - ends.begin()),
          blames_another(*cause) ? cause->record->blamed : -1};
}

}  // namespace parx::detail
