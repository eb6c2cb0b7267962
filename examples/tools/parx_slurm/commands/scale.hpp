// For parx_slurm: "scale", how the speed of a training grows with nodes, ranks and threads.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "tools/common/container.hpp"
#include "tools/parx_slurm/scaling.hpp"
#include <parx/core/json.hpp>

namespace examples {

struct scale_options {
  std::string job;  ///< Slurm's number; empty: this host, by parxrun
  std::vector<parx::slurm::scale_point> points;
  int rounds = 3;
  std::chrono::seconds limit{600};  ///< of one run
  double price = 0;                 ///< of a core for an hour
  std::string folder;               ///< that gets the runs' output
  parx::slurm::container box;
  std::vector<std::string> command;
};

void add_scale_flags(cxxopts::Options& options);

scale_options scale_options_of(const cxxopts::ParseResult& given,
                               const std::vector<std::string>& command);

/// A number in a text of run.json, "120,000": 120000; nullopt where there is none.
std::optional<double> setting(const parx::json::value& settings, const char* name);

/// Runs all points, in turns, and prints the table. Returns 0; 1 where no run gave figures.
int scale(const scale_options& options);

/// The same table from the output folders of earlier runs.
int scale_of_runs(const std::vector<std::string>& folders, double price);

}  // namespace examples
