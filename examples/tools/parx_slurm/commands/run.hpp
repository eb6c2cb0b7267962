// For parx_slurm: "run", from an allocation to the end of a training: nodes, checks, copies, ranks.
#pragma once

#include <chrono>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/options.hpp"
#include "tools/common/container.hpp"
#include "tools/common/held_signals.hpp"
#include "tools/common/host_facts.hpp"
#include "tools/common/run_command.hpp"
#include "tools/common/sent_names.hpp"
#include "tools/parx_slurm/commands/check.hpp"
#include "tools/parx_slurm/nodes/where.hpp"

namespace examples {

struct run_options {
  parx::slurm::node_request request;  ///< of the allocation, where this is not inside one
  check_options check;
  std::vector<std::string> stage;  ///< absolute paths to copy to the nodes that do not see them
  std::vector<std::string> command;
  bool inside_job = false;
  bool only_prints = false;  ///< --dry-run
  bool drops_bad_nodes = false;
  int least_nodes = 0;  ///< to go on with where nodes are lost; 0: all
  int max_restarts = 0;
};

void add_run_flags(cxxopts::Options& options);

run_options run_options_of(const cxxopts::ParseResult& given,
                           const std::vector<std::string>& command);

/// Of the program and --stage: what a node does not see, or sees an older copy of.
std::vector<parx::slurm::staged_path> to_stage(const run_options& options,
                                               const check_result& result);

/// Runs a command on this terminal and returns its exit code, as a shell has it.
int run_here(const std::vector<std::string>& words,
             parx::slurm::passed_on receiver = parx::slurm::passed_on::to_command);

/// Runs the srun line of the ranks and returns the job's exit code.
int run_ranks(const std::vector<std::string>& words, std::size_t nodes);

/// Removes from the nodes what was sent to them, however the run ends.
class sent_files {
 public:
  explicit sent_files(const check_options& options) : options_(options) {
    for (const char* const program : {"parx_doctor", "parxrun"}) {
      paths_.push_back(parx::slurm::helper_path(program, options.job));
    }
  }
  sent_files(const sent_files&) = delete;
  sent_files& operator=(const sent_files&) = delete;
  ~sent_files() {
    std::error_code ignored;
    for (const std::string& archive : made_here_) std::filesystem::remove(archive, ignored);
    try {
      remove_from_nodes(options_, paths_, silent_);
    } catch (const std::exception&) {
      // Without a process for it they stay until the nodes' /tmp is cleaned.
    }
  }
  [[nodiscard]] const std::vector<std::string>& paths() const noexcept { return paths_; }
  void leave_out(std::vector<std::string> nodes) { silent_ = std::move(nodes); }
  void add(const parx::slurm::staged_path& path) {
    paths_.push_back(path.to);
    if (path.kind == parx::slurm::path_kind::folder) {
      paths_.push_back(parx::slurm::archive_of(path));
      made_here_.push_back(parx::slurm::sent_archive_of(path));
    }
  }

 private:
  const check_options& options_;
  std::vector<std::string> paths_;
  std::vector<std::string> silent_;  ///< nodes that cannot be reached
  std::vector<std::string> made_here_;
};

/// In place of the number of a job that has none yet.
inline constexpr std::string_view job_to_come = "parx-job-to-come";

/// `all`: this program's own command line, for salloc.
int run(const run_options& options, const std::vector<std::string>& all);

}  // namespace examples
