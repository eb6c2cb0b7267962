// parting: which rank took another way than the others, as a failed job's flight recorders show it.
//
// Where ranks call different operations, or one is missing from a call, the first process to give
// up is a witness: its message names others. The records name who it was. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <parx/comm/flight/divergence.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::detail {

struct parting {
  std::vector<int> ranks;  ///< to blame
  std::string text;        ///< a sentence's subject and predicate, from "rank 3 ..." on
};

/// `stopped` are the ranks whose processes stood still when the job failed. Nothing where no rank
/// stands out.
[[nodiscard]] inline std::optional<parting> find_parting(const std::vector<flight_log>& logs,
                                                         const std::vector<int>& stopped) {
  const std::vector<flight_divergence> all = find_divergences(logs);
  if (all.empty()) return std::nullopt;
  const flight_divergence& first = all.front();
  const auto who = [&](flight_part part) {
    std::vector<const flight_rank*> found;
    for (const flight_rank& each : first.ranks) {
      if (each.part == part) found.push_back(&each);
    }
    return found;
  };
  const auto is_stopped = [&](int rank) {
    return std::find(stopped.begin(), stopped.end(), rank) != stopped.end();
  };
  static constexpr const char* standing = "its process was stopped (SIGSTOP, a debugger)";
  const auto named = [&](const std::vector<const flight_rank*>& ranks) {
    parting made;
    for (const flight_rank* const each : ranks) made.ranks.push_back(each->rank);
    return made;
  };
  const auto calls = [](const flight_record& record) {
    return formatted("{} (call #{})", describe(record.call), record.call.number());
  };
  const std::string there = formatted("on group \"{}\"", first.name);

  if (const auto others = who(flight_part::called_other); !others.empty()) {
    const bool is_minority = 2 * others.size() < first.ranks.size();
    parting made = named(others);
    if (is_minority) {
      made.text = formatted("rank {} called {} where the others called {}, {}",
                              joined_text(made.ranks), describe(others.front()->here->call),
                              calls(first.call), there);
    } else {
      std::vector<int> alike;
      for (const flight_rank& each : first.ranks) {
        if (each.here && each.part != flight_part::called_other) alike.push_back(each.rank);
      }
      made.text = formatted("the ranks called different operations {}: call #{} was {} on rank {}, "
                            "but {} on rank {}",
                            there, first.call.call.number(), describe(first.call.call),
                            joined_text(alike), describe(others.front()->here->call),
                            joined_text(made.ranks));
    }
    return made;
  }
  const auto absent = who(flight_part::never_entered);
  if (2 * absent.size() > first.ranks.size()) {  // who has come is the exception
    parting made;
    for (const flight_rank& each : first.ranks) {
      if (each.part != flight_part::never_entered) made.ranks.push_back(each.rank);
    }
    made.text = formatted("rank {} called {}, {}, which the others did not",
                          joined_text(made.ranks), calls(first.call), there);
    return made;
  }
  if (!absent.empty()) {
    parting made = named(absent);
    const flight_rank& one = *absent.front();
    made.text = formatted("rank {} did not enter {}, {}", joined_text(made.ranks),
                          calls(first.call), there);
    if (is_stopped(one.rank)) made.text += formatted("; {}", standing);
    else if (one.elsewhere) made.text += formatted("; it was in {}", to_text(*one.elsewhere));
    else if (one.last) made.text += formatted("; its last call there was {}", calls(*one.last));
    return made;
  }
  for (const flight_rank& each : first.ranks) {
    if (!is_stopped(each.rank) || each.part == flight_part::finished) continue;
    return parting{{each.rank},
                   formatted("rank {} did not finish {}, {}; {}", each.rank, calls(first.call),
                             there, standing)};
  }
  return std::nullopt;
}

}  // namespace parx::detail
