#include "tools/parx_slurm/nodes/test_only.hpp"

#include <ctime>

namespace parx::inline PARX_ABI::slurm {

expected_start parse_test_only(std::string_view output) {
  constexpr std::string_view mark = " to start at ";
  const auto found = output.find(mark);
  if (found != output.npos) {
    const std::string time(output.substr(found + mark.size(), 19));
    std::tm parts{};
    parts.tm_isdst = -1;
    if (::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) != nullptr) {
      return {.at = std::chrono::system_clock::from_time_t(std::mktime(&parts)), .refusal = {}};
    }
  }
  std::string text(output.substr(0, output.find_last_not_of('\n') + 1));
  // The last line is the reason: "allocation failure: Requested node configuration is not ..."
  text.erase(0, text.rfind('\n') + 1);
  for (const std::string_view prefix : {"sbatch: ", "error: ", "allocation failure: "}) {
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
  }
  return {.at = std::nullopt, .refusal = text.empty() ? "Slurm gave no reason" : text};
}

}  // namespace parx::slurm
