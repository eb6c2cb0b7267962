#include "tools/parxrun/ranks/orphans.hpp"

#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

std::string orphans_text(const std::vector<pid_t>& processes) {
  std::string names;
  for (const pid_t each : processes) {
    const auto entry = find_process(each);
    names += formatted("{}{} ({})", names.empty() ? "" : ", ", entry ? entry->name : "?", each);
  }
  return formatted(
      "parxrun: the ranks have ended and left processes behind, which end now: {}. A "
      "script that starts its program in the background must wait for it\n",
      names);
}

}  // namespace parx::detail
