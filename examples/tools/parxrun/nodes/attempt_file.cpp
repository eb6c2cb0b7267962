#include "tools/parxrun/nodes/attempt_file.hpp"

#include <fstream>
#include <string>

#include "tools/parxrun/ranks/output_channel.hpp"
#include "tools/parxrun/ranks/rank_output.hpp"

namespace parx::inline PARX_ABI::detail {

void write_attempt(const agent_options& options, const json::object& attempt) {
  if (options.log_dir.empty()) return;
  const json::value what = attempt;
  const std::string folder =
      rank_output::folder_of(options, what.as<int>("restarts"), what.as<int>("generation"));
  make_log_folder(folder);
  std::ofstream(folder + "/attempt.json") << json::dump(what, 2) << "\n";
}

}  // namespace parx::detail
