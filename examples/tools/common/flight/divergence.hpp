// divergence: where the ranks of a job diverged, i.e. the first operation of each group in which
// ranks called different things, or else that not all of its ranks finished, found by comparing
// their logs by (group, sequence). Pure.
//
// Different calls come first because they end the group: a slow rank may still have been in an
// operation before them, which then failed although all ranks had called it.
//
// Only collectives are compared; messages have no number that both ranks share. A rank whose log no
// longer has the operation is left out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/common/flight/clocks.hpp"
#include "tools/common/flight/reader.hpp"
#include <parx/comm/detail/progress/call.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

enum class flight_part {
  never_entered,  ///< it has not entered this operation
  called_other,   ///< it called a different operation than most ranks
  in_it,          ///< it entered and has not finished
  failed,         ///< the group ended while it was in it
  finished,
};

struct flight_rank {
  int rank = 0;  ///< of the job
  flight_part part = flight_part::never_entered;
  std::optional<flight_record> here{};  ///< its call of this number
  std::optional<flight_record> last{};  ///< its last call of the group before it
  /// Of a rank that never entered: its last unfinished call of another group, or message.
  std::optional<flight_record> elsewhere{};
};

struct flight_divergence {
  std::uint64_t group = 0;
  std::string name{};
  int members = 0;  ///< of the group; may exceed `ranks`, since some may have no log
  flight_record call{};  ///< what most ranks called
  std::int64_t entered_ns = 0;  ///< when the first rank entered, on the aligned clock
  std::vector<flight_rank> ranks{};
};

namespace detail {

/// The collectives of one rank in one group, by sequence.
struct flight_column {
  const flight_log* log = nullptr;
  std::map<std::uint64_t, flight_record> calls;
};

/// Whether the call may have been dropped from the log.
[[nodiscard]] inline bool has_forgotten(const flight_column& column, std::uint64_t sequence) {
  return column.log->forgot && (column.calls.empty() || sequence < column.calls.begin()->first);
}

/// The call of most ranks under this number; on a tie, the lowest rank's.
[[nodiscard]] inline const flight_record* usual_call(const std::vector<flight_column>& columns,
                                                     std::uint64_t sequence) {
  const flight_record* usual = nullptr;
  std::ptrdiff_t most = 0;
  for (const flight_column& column : columns) {
    const auto mine = column.calls.find(sequence);
    if (mine == column.calls.end()) continue;
    const auto like_it = std::count_if(columns.begin(), columns.end(), [&](const auto& other) {
      const auto theirs = other.calls.find(sequence);
      return theirs != other.calls.end() && theirs->second.call.matches(mine->second.call);
    });
    if (like_it <= most) continue;
    most = like_it;
    usual = &mine->second;
  }
  return usual;
}

[[nodiscard]] inline flight_part part_of(const flight_record& mine, const flight_record& usual) {
  if (!mine.call.matches(usual.call)) return flight_part::called_other;
  switch (mine.state) {
    case flight_state::finished: return flight_part::finished;
    case flight_state::failed: return flight_part::failed;
    case flight_state::entered: break;
  }
  return flight_part::in_it;
}

[[nodiscard]] inline std::optional<flight_record> unfinished_elsewhere(const flight_log& log,
                                                                       std::uint64_t group) {
  for (auto each = log.records.rbegin(); each != log.records.rend(); ++each) {
    const bool elsewhere = each->call.group != group || each->call.sequence == 0;
    if (elsewhere && each->state != flight_state::finished) return *each;
  }
  return std::nullopt;
}

[[nodiscard]] inline std::optional<flight_divergence> diverges_at(
    const std::vector<flight_column>& columns, std::uint64_t group, std::uint64_t sequence,
    const std::vector<std::int64_t>& ahead) {
  const flight_record* const usual = usual_call(columns, sequence);
  flight_divergence found{.group = group, .call = *usual};
  bool all_finished = true;
  std::optional<std::int64_t> first;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const flight_column& column = columns[i];
    if (has_forgotten(column, sequence)) continue;
    flight_rank rank{.rank = column.log->rank};
    const auto here = column.calls.lower_bound(sequence);
    if (here != column.calls.begin()) rank.last = std::prev(here)->second;
    if (here != column.calls.end() && here->first == sequence) {
      rank.here = here->second;
      rank.part = part_of(*rank.here, *usual);
      const std::int64_t entered = rank.here->entered_ns - ahead[i];
      first = std::min(first.value_or(entered), entered);
    } else {
      rank.elsewhere = unfinished_elsewhere(*column.log, group);
    }
    all_finished &= rank.part == flight_part::finished;
    found.ranks.push_back(std::move(rank));
  }
  if (all_finished) return std::nullopt;
  found.entered_ns = first.value_or(0);
  return found;
}

}  // namespace detail

/// One for each group that diverged, the cause first: groups whose missing ranks are all stuck in
/// another diverged group go last; otherwise in the order of the first entry.
[[nodiscard]] inline std::vector<flight_divergence> find_divergences(
    const std::vector<flight_log>& logs) {
  const std::vector<std::int64_t> ahead = align_clocks(logs);
  std::map<std::uint64_t, const flight_group_name*> groups;
  for (const flight_log& log : logs) {
    for (const auto& each : log.groups) groups.emplace(each.id, &each);
  }
  std::vector<flight_divergence> found;
  for (const auto& [id, described] : groups) {
    std::vector<detail::flight_column> columns;
    std::vector<std::int64_t> ahead_of_columns;
    std::set<std::uint64_t> sequences;
    for (std::size_t i = 0; i < logs.size(); ++i) {
      const auto& own = logs[i].groups;
      if (std::ranges::find(own, id, &flight_group_name::id) == own.end()) continue;
      detail::flight_column column{&logs[i], {}};
      for (const flight_record& each : logs[i].records) {
        if (each.call.group != id || each.call.sequence == 0) continue;
        column.calls.insert_or_assign(each.call.sequence, each);
        sequences.insert(each.call.sequence);
      }
      columns.push_back(std::move(column));
      ahead_of_columns.push_back(ahead[i]);
    }
    std::optional<flight_divergence> first;
    for (const std::uint64_t sequence : sequences) {
      auto here = detail::diverges_at(columns, id, sequence, ahead_of_columns);
      if (!here) continue;
      const bool differs = std::ranges::find(here->ranks, flight_part::called_other,
                                             &flight_rank::part) != here->ranks.end();
      if (!first || differs) first = std::move(here);
      if (differs) break;
    }
    if (!first) continue;
    first->name = described->name;
    first->members = described->size;
    found.push_back(std::move(*first));
  }
  const auto waits_for_another_group = [&](const flight_divergence& each) {
    const auto absent = [](const flight_rank& rank) {
      return rank.part == flight_part::never_entered;
    };
    const auto stuck = [&](const flight_rank& rank) {
      return !absent(rank) || (rank.elsewhere && std::any_of(found.begin(), found.end(),
                                                             [&](const auto& other) {
        return other.group != each.group && other.group == rank.elsewhere->call.group;
      }));
    };
    return std::any_of(each.ranks.begin(), each.ranks.end(), absent) &&
           std::all_of(each.ranks.begin(), each.ranks.end(), stuck);
  };
  std::vector<std::pair<bool, flight_divergence>> ordered;
  for (const auto& each : found) ordered.emplace_back(waits_for_another_group(each), each);
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? b.first : a.second.entered_ns < b.second.entered_ns;
  });
  for (std::size_t i = 0; i < found.size(); ++i) found[i] = std::move(ordered[i].second);
  return found;
}

/// "#812, all_reduce of 1024 float32 (sum) at train.cpp:88"; "a message with rank 2 and tag 7
/// at train.cpp:90", where the rank is that in the group: a send and its receive are
/// recorded alike.
[[nodiscard]] inline std::string to_text(const flight_record& record) {
  const detail::call_header& call = record.call;
  if (call.sequence != 0) return formatted("#{}, {}", call.number(), describe(call));
  std::string text = formatted("a message with {} and tag {}",
                               record.peer < 0 ? "any rank" : formatted("rank {}", record.peer),
                               call.root);
  if (call.line != 0) text += formatted(" at {}:{}", call.file_name(), call.line);
  return text;
}

/// How a rank's process ended, according to its log.
[[nodiscard]] inline std::string to_text(flight_ending ending) {
  switch (ending) {
    case flight_ending::left: return "it left the job";
    case flight_ending::failed: return "its group failed";
    case flight_ending::running: break;
  }
  return "it runs, is stopped or was killed";
}

/// Several lines, without a final line break: the operation, then what each rank did.
[[nodiscard]] inline std::string to_text(const flight_divergence& found,
                                         const std::vector<flight_log>& logs) {
  std::string text = formatted("{} on group \"{}\"", to_text(found.call), found.name);
  const auto ending_of = [&](int rank) {
    const auto log = std::ranges::find(logs, rank, &flight_log::rank);
    return log == logs.end() ? std::string()
                             : formatted(" ({}, pid {}; {})", log->host, log->pid,
                                           to_text(log->ending));
  };
  for (const flight_rank& each : found.ranks) {
    text += formatted("\n  rank {}{}: ", each.rank, ending_of(each.rank));
    switch (each.part) {
      case flight_part::never_entered:
        text += "never entered it";
        if (each.elsewhere) text += formatted("; it is in {}", to_text(*each.elsewhere));
        if (each.last) text += formatted("; its last call here was {}", to_text(*each.last));
        break;
      case flight_part::called_other:
        text += formatted("called something else: {}", to_text(*each.here));
        break;
      case flight_part::in_it: text += "is in it still"; break;
      case flight_part::failed: text += "was in it when its group failed"; break;
      case flight_part::finished: text += "finished it"; break;
    }
  }
  const auto unknown = found.members - static_cast<int>(found.ranks.size());
  if (unknown > 0) text += formatted("\n  {} more of the group: no record", unknown);
  return text;
}

}  // namespace parx
