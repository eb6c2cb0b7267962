// attempt_file: attempt.json beside the logs of a generation: who took part, when, and why it
// ended.
#pragma once

#include <fstream>
#include <string>

#include <parx/core/json.hpp>
#include <parx/launch/agent_options.hpp>
#include <parx/launch/detail/output_channel.hpp>
#include <parx/launch/detail/rank_output.hpp>

namespace parx::inline PARX_ABI::detail {

/// Writes it anew, where there is a log folder. A disk that is full loses it, not the job.
inline void write_attempt(const agent_options& options, const json::object& attempt) {
  if (options.log_dir.empty()) return;
  const json::value what = attempt;
  const std::string folder =
      rank_output::folder_of(options, what.as<int>("restarts"), what.as<int>("generation"));
  make_log_folder(folder);
  std::ofstream(folder + "/attempt.json") << json::dump(what, 2) << "\n";
}

}  // namespace parx::detail
