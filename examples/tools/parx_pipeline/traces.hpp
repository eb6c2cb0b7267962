// For parx_pipeline --trace: the timeline of a traced run, and the prediction of its schedule.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "common/pipeline/from_trace.hpp"
#include <parx/pipeline.hpp>

namespace examples {

inline std::string contents_of(const char* flag, const std::string& file) {
  std::ifstream in(file);
  parx::require(in.good(), "--{} {}: cannot be read", flag, file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The prediction of a run's schedule at its mean times, and the run itself, in milliseconds.
inline std::vector<parx::pipeline_timeline> timelines_of(
    const std::vector<std::string>& traces) {
  std::vector<std::string> texts;
  for (const std::string& file : traces) texts.push_back(contents_of("trace", file));
  parx::pipeline_timeline run = parx::from_trace(texts);
  for (auto& rank : run.ranks) {
    for (parx::action_span& each : rank) each.begin *= 1e3, each.end *= 1e3;
  }
  parx::pipeline_timeline predicted = simulate(table_of(run), parx::costs_of(run));
  run.name = predicted.name + " as it ran, in ms";
  predicted.name += " predicted, in ms";
  return {std::move(predicted), std::move(run)};
}

}  // namespace examples
