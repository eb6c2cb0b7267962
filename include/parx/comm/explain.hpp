// explain: which algorithm a group uses for an operation, and why.
#pragma once

#include <cstddef>
#include <vector>

#include <parx/comm/detail/group_core.hpp>
#include <parx/comm/measure.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/comm/schedule/explain.hpp>

namespace parx::inline PARX_ABI {

/// All algorithms of `what` for a whole vector of `bytes` bytes: their predicted times, the chosen
/// one and the reason. explain_text() of schedule/explain.hpp formats the result.
/// Collective if it is the group's first operation, else local.
[[nodiscard]] inline std::vector<explanation> explain(process_group& group, operation what,
                                                      std::size_t bytes,
                                                      call_site site = call_site::current()) {
  ready_choice(group, site);
  detail::issuer& issuer = detail::core_of(group)->issuer();
  call_shape shape{.what = what, .count = bytes};
  issuer.complete(shape);
  return explain_table(shape, issuer.choice().costs(), issuer.choice().rules());
}

}  // namespace parx
