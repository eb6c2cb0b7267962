// divergence_text: which rank called something else than the others, from a failed job's flight
// recorders.
//
// Where ranks call different operations, or one does not enter a call, the first process to fail is
// usually not the one to blame: its message names the ranks that it waited for. The records show
// which rank diverged. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <parx/comm/flight/divergence.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::detail {

/// "rank 3 called ..., where the others called ..."; empty where no rank stands out. `stopped` are
/// the ranks whose processes were stopped (SIGSTOP) when the job failed.
[[nodiscard]] inline std::string divergence_text(const std::vector<flight_log>& logs,
                                                 const std::vector<int>& stopped) {
  const std::vector<flight_divergence> all = find_divergences(logs);
  if (all.empty()) return {};
  const flight_divergence& first = all.front();
  const auto who = [&](flight_part part) {
    std::vector<const flight_rank*> found;
    for (const flight_rank& each : first.ranks) {
      if (each.part == part) found.push_back(&each);
    }
    return found;
  };
  const auto names = [](const std::vector<const flight_rank*>& ranks) {
    std::vector<int> numbers;
    for (const flight_rank* const each : ranks) numbers.push_back(each->rank);
    return joined_text(numbers);
  };
  const auto is_stopped = [&](int rank) {
    return std::find(stopped.begin(), stopped.end(), rank) != stopped.end();
  };
  static constexpr const char* stopped_text = "its process was stopped (SIGSTOP, a debugger)";
  const auto calls = [](const flight_record& record) {
    return formatted("{} (call #{})", describe(record.call), record.call.number());
  };
  const std::string there = formatted("on group \"{}\"", first.name);

  if (const auto others = who(flight_part::called_other); !others.empty()) {
    const std::string other_call = describe(others.front()->here->call);
    std::vector<int> alike;
    for (const flight_rank& each : first.ranks) {
      if (each.here && each.part != flight_part::called_other) alike.push_back(each.rank);
    }
    if (others.size() < alike.size()) {
      return formatted("rank {} called {} where the others called {}, {}", names(others),
                       other_call, calls(first.call), there);
    }
    return formatted("the ranks called different operations {}: call #{} was {} on rank {}, "
                     "but {} on rank {}",
                     there, first.call.call.number(), describe(first.call.call),
                     joined_text(alike), other_call, names(others));
  }
  const auto absent = who(flight_part::never_entered);
  if (2 * absent.size() > first.ranks.size()) {  // then those that entered are the exception
    std::vector<int> present;
    for (const flight_rank& each : first.ranks) {
      if (each.part != flight_part::never_entered) present.push_back(each.rank);
    }
    return formatted("rank {} called {}, {}, which the others did not", joined_text(present),
                     calls(first.call), there);
  }
  if (!absent.empty()) {
    const flight_rank& one = *absent.front();
    std::string text =
        formatted("rank {} did not enter {}, {}", names(absent), calls(first.call), there);
    if (is_stopped(one.rank)) text += formatted("; {}", stopped_text);
    else if (one.elsewhere) text += formatted("; it was in {}", to_text(*one.elsewhere));
    else if (one.last) text += formatted("; its last call there was {}", calls(*one.last));
    return text;
  }
  for (const flight_rank& each : first.ranks) {
    if (!is_stopped(each.rank) || each.part == flight_part::finished) continue;
    return formatted("rank {} did not finish {}, {}; {}", each.rank, calls(first.call), there,
                     stopped_text);
  }
  return {};
}

}  // namespace parx::detail
