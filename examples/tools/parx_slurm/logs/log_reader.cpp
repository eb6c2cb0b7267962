#include "tools/parx_slurm/logs/log_reader.hpp"

namespace parx::inline PARX_ABI::slurm {

void read_log(std::string_view text, const std::string& file, log_summary& summary,
              std::string_view attempt) {
  log_reader reader(file, summary, attempt);
  reader.read(text);
  reader.end();
}

}  // namespace parx::slurm
