#include "tools/parxrun/failures/verdict.hpp"

#include <algorithm>
#include <tuple>

namespace parx::inline PARX_ABI::detail {

verdict judge(const std::vector<rank_end>& ends) {
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
