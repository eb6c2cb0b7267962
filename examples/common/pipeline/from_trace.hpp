// from_trace: the timeline of a run from the files that PARX_TRACE wrote, one for each rank of a
// pipeline, to draw beside simulate(table_of(timeline), costs_of(timeline)).
//
// In category "pipeline", an action is a span whose name is its text, "2F0", within a span named
// "step". Steps are counted from the end, because a full ring buffer drops the first events. The
// last step with a backward is used, or the last one if none has any.
// Hosts have different steady clocks; their times are aligned by Unix time. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/json.hpp>
#include <parx/pipeline/action.hpp>
#include <parx/pipeline/catalog.hpp>
#include <parx/pipeline/simulate.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

using traced_step = std::vector<action_span>;

/// The steps of one rank. Times are microseconds since the host started.
struct traced_rank {
  double clock_offset = 0;  ///< Unix time minus those times, in microseconds
  std::vector<traced_step> steps;
};

[[nodiscard]] inline traced_rank read_traced_rank(std::string_view text) {
  const json::value file = json::parse(text);
  const json::value& other = file.at("otherData");
  traced_rank found{.clock_offset = other.as<double>("clock_offset_us"), .steps = {}};
  traced_step all;
  std::vector<std::pair<double, double>> steps;
  for (const json::value& event : file.at("traceEvents").elements()) {
    const json::value* const category = event.find("cat");
    if (category == nullptr || category->text() != "pipeline") continue;
    const std::string& name = event.at("name").text();
    const double begin = event.as<double>("ts"), end = begin + event.as<double>("dur");
    if (name == "step") {
      steps.emplace_back(begin, end);
    } else if (const auto action = parse_stage_action(name)) {
      all.push_back({*action, begin, end});
    }
  }
  std::sort(steps.begin(), steps.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const action_span& a, const action_span& b) { return a.begin < b.begin; });
  for (const auto& [begin, end] : steps) {
    auto& step = found.steps.emplace_back();
    for (const action_span& each : all) {
      if (each.begin >= begin && each.begin < end) step.push_back(each);
    }
  }
  return found;
}

[[nodiscard]] inline bool has_backward(const traced_step& step) {
  return std::any_of(step.begin(), step.end(), [](const action_span& each) {
    return makes_weight_gradient(each.action.kind);
  });
}

}  // namespace detail

/// The table of a timeline: its actions without their times. It has the name of the schedule in the
/// catalog that makes the same table, else the timeline's.
[[nodiscard]] inline pipeline_table table_of(const pipeline_timeline& run) {
  pipeline_table table{.name = run.name, .stages = run.stages, .microbatches = 0, .ranks = {}};
  for (const auto& rank : run.ranks) {
    auto& actions = table.ranks.emplace_back();
    for (const action_span& each : rank) {
      actions.push_back(each.action);
      table.microbatches = std::max(table.microbatches, each.action.microbatch + 1);
    }
  }
  const int ranks = static_cast<int>(table.ranks.size());
  for (const named_schedule& each : pipeline_schedules) {
    try {
      const auto made = each.make({.ranks = ranks, .microbatches = table.microbatches,
                                   .chunks = table.stages / ranks});
      if (made.ranks != table.ranks) continue;
      table.name = made.name;
      break;
    } catch (const usage_error&) {  // this schedule does not support the shape
    }
  }
  return table;
}

/// The mean times of a timeline's actions, in its unit. A timeline does not show hops: that is 0.
[[nodiscard]] inline pipeline_costs costs_of(const pipeline_timeline& run) {
  std::array<double, 4> sums{}, counts{};
  for (const auto& rank : run.ranks) {
    for (const action_span& each : rank) {
      if (!is_compute(each.action.kind)) continue;
      sums[static_cast<std::size_t>(each.action.kind)] += each.end - each.begin;
      counts[static_cast<std::size_t>(each.action.kind)] += 1;
    }
  }
  for (std::size_t kind = 0; kind < sums.size(); ++kind) sums[kind] /= std::max(counts[kind], 1.0);
  return {.f = sums[0], .b = sums[1], .i = sums[2], .w = sums[3], .hop = 0};
}

/// `files` are the texts of the traces, in any order. Times are seconds from the first action; rows
/// are in the order of the stages. Throws json::error for invalid JSON, usage_error for a file
/// without actions and unless the files are exactly those of one pipeline.
[[nodiscard]] inline pipeline_timeline from_trace(std::span<const std::string> files) {
  require(!files.empty(), "from_trace needs the trace of each rank of a pipeline");
  std::vector<detail::traced_rank> ranks;
  std::size_t steps = std::numeric_limits<std::size_t>::max();
  for (const std::string& each : files) {
    ranks.push_back(detail::read_traced_rank(each));
    require(!ranks.back().steps.empty() && !ranks.back().steps.back().empty(),
            "trace {} of {} has no action of a pipeline: give the files of ranks with stages",
            ranks.size(), files.size());
    steps = std::min(steps, ranks.back().steps.size());
  }
  std::size_t taken = 1;  // counted from the end
  for (std::size_t back = 1; back <= steps; ++back) {
    const auto& of_first = ranks.front().steps;
    if (!detail::has_backward(of_first[of_first.size() - back])) continue;
    taken = back;
    break;
  }
  const double host_offset = ranks.front().clock_offset;
  double start = std::numeric_limits<double>::infinity();
  pipeline_timeline run{.name = "as it ran", .stages = 0, .ranks = {}};
  for (const detail::traced_rank& each : ranks) {
    run.ranks.push_back(each.steps[each.steps.size() - taken]);
    require(!run.ranks.back().empty(),
            "trace {} of {} has lost that step's actions: raise PARX_TRACE_EVENTS",
            run.ranks.size(), files.size());
    // Ranks of a host share a steady clock; their offsets differ only by NTP's corrections.
    const double apart = each.clock_offset - host_offset;
    const double shift = std::abs(apart) < 1e6 ? 0 : apart;
    for (action_span& span : run.ranks.back()) {
      span.begin += shift;
      span.end += shift;
      start = std::min(start, span.begin);
      run.stages = std::max(run.stages, span.action.stage + 1);
    }
  }
  std::vector<int> ranks_of(static_cast<std::size_t>(run.stages));
  const auto lowest = [](const detail::traced_step& step) {
    return std::min_element(step.begin(), step.end(),
                            [](const action_span& a, const action_span& b) {
                              return a.action.stage < b.action.stage;
                            })->action.stage;
  };
  std::sort(run.ranks.begin(), run.ranks.end(),
            [&](const auto& a, const auto& b) { return lowest(a) < lowest(b); });
  for (auto& rank : run.ranks) {
    std::vector<bool> has(ranks_of.size());
    for (action_span& span : rank) {
      span.begin = (span.begin - start) * 1e-6;
      span.end = (span.end - start) * 1e-6;
      has[static_cast<std::size_t>(span.action.stage)] = true;
    }
    for (std::size_t stage = 0; stage < has.size(); ++stage) ranks_of[stage] += has[stage] ? 1 : 0;
  }
  for (std::size_t stage = 0; stage < ranks_of.size(); ++stage) {
    require(ranks_of[stage] == 1,
            "{} of the {} traces have stage {}: give those of one pipeline, one of each rank",
            ranks_of[stage], files.size(), stage);
  }
  return run;
}

}  // namespace parx
