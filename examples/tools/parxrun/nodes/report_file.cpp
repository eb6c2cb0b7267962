#include "tools/parxrun/nodes/report_file.hpp"

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>

#include "tools/parxrun/ranks/output_channel.hpp"
#include <parx/core/temporary_file.hpp>

namespace parx::inline PARX_ABI::detail {

void write_report(const agent_options& options, job_report& report) {
  constexpr std::size_t most_with_ranks = 8;
  if (report.generations.size() > most_with_ranks) {
    report.generations[report.generations.size() - most_with_ranks - 1].nodes.clear();
  }
  if (options.log_dir.empty()) return;
  const std::string folder =
      options.log_dir + (options.nodes.has_generations() ? "/" + report.id : std::string());
  make_log_folder(folder);
  const std::string file = folder + "/report.json", next = temporary_name(file);
  if (!(std::ofstream(next) << json::dump(json::to_json(report), 2) << "\n").flush() ||
      std::rename(next.c_str(), file.c_str()) != 0) {
    std::remove(next.c_str());
  }
}

}  // namespace parx::detail
