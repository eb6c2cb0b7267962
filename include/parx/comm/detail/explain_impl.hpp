// Definitions of explain.hpp.
#pragma once

#include <cstddef>

#include <parx/comm/detail/progress/group_core.hpp>
#include <parx/comm/explain.hpp>
#include <parx/comm/measure.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE std::vector<explanation> explain(process_group& group, operation what,
                                             std::size_t bytes, call_site site) {
  detail::group_core& core = *detail::core_of(group);
  ready_choice(group, site);
  const call_shape shape{.what = what,
                         .rank = group.rank(),
                         .world = group.size(),
                         .count = bytes,
                         .staging_bytes = core.choice().staging_bytes(),
                         .host_of = core.choice().hosts()};
  return explain_table(shape, core.choice().costs(), core.choice().rules());
}

}  // namespace parx
