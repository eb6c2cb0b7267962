#include "tools/parx_slurm/logs/log_reader.hpp"

namespace parx::inline PARX_ABI::slurm {

void read_log(std::string_view text, const std::string& file, log_summary& summary,
              const generation_report* report) {
  log_reader reader(file, summary, report);
  reader.read(text);
  reader.end();
}

}  // namespace parx::slurm
