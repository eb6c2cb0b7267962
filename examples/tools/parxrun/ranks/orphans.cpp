#include "tools/parxrun/ranks/orphans.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/process_table.hpp>

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
