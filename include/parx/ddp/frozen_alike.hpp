// Refuses a parameter that is frozen on some ranks of a wrapper only: its mean over all samples
// would lack theirs, in silence.
//
// The step header counts these ranks with every step, at no cost; only their names are asked for
// once there is an error.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI::detail {

/// `parameter` has a name() and is_frozen(); `frozen_ranks` is the number of such ranks, the same
/// on all of `group`; `site` is where the user made the wrapper. Throws errc::mismatch on all ranks
/// where some have frozen it and others have not.
template <typename Parameter>
void require_frozen_alike(process_group& group, std::string_view wrapper,
                          const Parameter& parameter, double frozen_ranks, call_site site) {
  if (frozen_ranks == 0 || frozen_ranks == group.size()) [[likely]]
    return;
  const int here = parameter.is_frozen() ? 1 : 0;
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(&here, 1), all, {}, site);
  std::vector<std::size_t> frozen;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != 0) frozen.push_back(rank);
  // Frozen on all since some ranks have accumulated gradients of it.
  if (frozen.size() == all.size()) return;
  throw_error(
      errc::mismatch,
      "{} at {}: parameter \"{}\" is frozen on rank {} of {} and trained on the others: its "
      "gradient would lack their samples. Call freeze() on all ranks or on none",
      wrapper, site, parameter.name(), joined_text(frozen), group.size());
}

}  // namespace parx::detail
