// Definitions of explain.hpp.
#pragma once

#include <parx/comm/detail/group_core.hpp>
#include <parx/comm/explain.hpp>
#include <parx/comm/measure.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE std::vector<explanation> explain(process_group& group, operation what,
                                             std::size_t bytes, call_site site) {
  ready_choice(group, site);
  detail::issuer& issuer = detail::core_of(group)->issuer();
  call_shape shape{.what = what, .count = bytes};
  issuer.complete(shape);
  return explain_table(shape, issuer.choice().costs(), issuer.choice().rules());
}

}  // namespace parx
