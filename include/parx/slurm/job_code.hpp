// job_code: the exit code of a job of several parxruns under one srun. Pure.
//
// All parxruns end with the job's code, and srun with the highest one of its tasks. Where a parxrun
// itself was killed, with its node or by the kernel for want of memory, srun has that signal's code
// (137), which says nothing of the job. The report of the first node's parxrun has the job's; where
// that one was killed, so have those that have ended by themselves.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>
#include <parx/core/parse_number.hpp>

namespace parx::inline PARX_ABI::slurm {

/// Reads what srun writes to standard error, its own lines and those of the parxruns. Lines of
/// ranks have the rank before them, so none of them looks like these.
class job_code {
 public:
  /// The next bytes, in pieces of any size.
  void read(std::string_view bytes) {
    for (;;) {
      const auto end = bytes.find('\n');
      const std::string_view piece = bytes.substr(0, end);
      // Longer ones are a rank's.
      if (line_.size() <= longest) line_.append(piece.substr(0, longest + 1));
      if (end == bytes.npos) return;
      read_line();
      line_.clear();
      bytes.remove_prefix(end + 1);
    }
  }

  /// The job's code, where srun has ended with `srun_code`.
  [[nodiscard]] int value(int srun_code) const {
    if (reported_) return *reported_;
    return of_tasks_.size() == 1 ? *of_tasks_.begin() : srun_code;
  }

 private:
  static constexpr std::size_t longest = 4096;

  void read_line() {
    constexpr std::string_view of_report = "  parxrun exits with code ";
    constexpr std::string_view of_srun = "srun: error: ";
    constexpr std::string_view ended = ": Exited with exit code ";
    const std::string_view line = line_;
    using parx::detail::parse_number;
    if (line.starts_with(of_report)) {
      if (const auto code = parse_number<int>(line.substr(of_report.size()))) reported_ = *code;
    } else if (const auto at = line.find(ended); line.starts_with(of_srun) && at != line.npos) {
      if (const auto code = parse_number<int>(line.substr(at + ended.size()))) {
        of_tasks_.insert(*code);
      }
    }
  }

  std::string line_;  ///< begun
  std::optional<int> reported_;
  std::set<int> of_tasks_;  ///< of the parxruns that ended by themselves, without 0
};

}  // namespace parx::slurm
