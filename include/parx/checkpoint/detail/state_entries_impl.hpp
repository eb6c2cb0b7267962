// Definitions of state_entries.hpp.
#pragma once

#include <parx/checkpoint/state_entries.hpp>
#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::vector<state_entry> checked_whole(std::vector<state_entry> entries,
                                                   call_site site) {
  for (const state_entry& entry : entries) {
    require(entry.part.is_whole(),
            "at {}: of parameter \"{}\" this rank holds {}, not the whole. {}", site, entry.name,
            entry.part.text(), advice_for_parts);
  }
  return entries;
}

}  // namespace parx::detail
