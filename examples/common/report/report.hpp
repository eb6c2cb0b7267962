// report: one or several runs as one HTML page with embedded SVG charts: no scripts, no network.
//
//   parx::train::write_report("report.html", {"out"});
//   parx::train::write_report("scaling.html", {"out1", "out2", "out4"});   // with the efficiency
//
// Modelled on LLview's job reports: a table of the runs, notable findings in a sentence each, the
// training curves, CPU and memory of each rank over time, and how each rank spent its time. Reads
// the files train.jsonl, ranks.jsonl and run.json that the trainer writes to output_dir. Local.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/report/chart.hpp"
#include <parx/core/json.hpp>
#include <parx/train/record.hpp>

namespace parx::inline PARX_ABI::train {

/// The contents of the log files of one run.
struct run_report {
  std::string name;
  std::vector<record> lines = {};       ///< train.jsonl
  std::vector<json::value> ranks = {};  ///< ranks.jsonl
  std::size_t world = 1;
  json::object settings = {};  ///< run.json; empty if an earlier parx has written the run

  /// The last value of a figure; 0 if no line has it.
  [[nodiscard]] double last(std::string_view figure) const;
  /// The values of a figure in all lines that have it. If there are more than two, without the
  /// first one, which includes the warm-up of caches and memory.
  [[nodiscard]] std::vector<double> settled(std::string_view figure) const;
  /// The mean of settled(); 0 if no line has the figure.
  [[nodiscard]] double mean(std::string_view figure) const;
  /// Samples per second: the samples of all settled lines over their time. Every line covers the
  /// same number of steps, so this is the harmonic mean; the plain mean overweights fast lines.
  [[nodiscard]] double rate() const;
};

namespace detail {

/// The figures that ranks.jsonl has for each rank.
inline constexpr std::array<const char*, 6> rank_quantities{
    "cpu_percent",       "resident_mib", "compute_percent", "communication_wait_percent",
    "data_wait_percent", "samples_per_second"};

}  // namespace detail

/// Throws errc::io if `folder` has no train.jsonl or ranks.jsonl. Damaged lines are skipped, and a
/// warning names the first.
[[nodiscard]] run_report read_run(const std::string& folder);

namespace detail {

/// "97.3", or from 1000 on "1,298,608".
[[nodiscard]] std::string rate_text(double rate);

/// The page up to the first table. Charts stand side by side if the window is wide enough.
inline constexpr const char* page_start =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>parx training "
    "report</title>\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n"
    ":root { color-scheme: light dark; }\n"
    "body { font: 15px/1.5 system-ui, sans-serif; max-width: 1400px; margin: 2em auto; "
    "padding: 0 1em; }\n"
    "table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; "
    "width: max-content; max-width: 100%; overflow-x: auto; }\nth { white-space: nowrap; }\n"
    "th, td { text-align: right; padding: 0.2em 0.6em; border-bottom: 1px solid #8886; }\n"
    "th:first-child, td:first-child { text-align: left; white-space: nowrap; }\n"
    ".charts { display: grid; align-items: start; gap: 1em;\n"
    "  grid-template-columns: repeat(auto-fill, minmax(min(100%, 420px), 1fr)); }\n"
    "svg { width: 100%; height: auto; }\n"
    "@media print { body { font-size: 9pt; margin: 0; max-width: none; }\n"
    "  table { display: table; width: auto; } th, td { padding: 0.1em 0.5em; }\n"
    "  .charts { grid-template-columns: 1fr 1fr; }\n"
    "  svg { break-inside: avoid; } h2 { break-after: avoid; } }\n"
    "</style></head><body>\n<h1>Training report</h1>\n";

}  // namespace detail

/// The page for one or several runs; `more` is HTML that stands before their settings.
[[nodiscard]] std::string report_html(const std::vector<run_report>& runs,
                                      const std::string& more = {});

/// Reads the runs whose output_dirs are given and writes the page. Throws errc::io.
void write_report(const std::string& path, const std::vector<std::string>& output_dirs,
                  const std::string& more = {});

}  // namespace parx::train
