// clocks: the offsets between the ranks' clocks, computed from their logs alone. Pure.
//
// Ranks of one host read the same steady clock. Between hosts the first estimate is by the wall
// clocks. Then each barrier, all_reduce or all_gather that both ranks finished gives bounds,
// because no rank leaves it before the other has entered; the estimate is clamped to these bounds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/common/flight/reader.hpp"
#include <parx/comm/schedule/operation.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Whether no rank can finish this call before all ranks have entered it.
[[nodiscard]] inline bool synchronises(const flight_record& each) noexcept {
  const auto what = static_cast<operation>(each.call.operation);
  const bool all_depend = what == operation::barrier ||
                          (each.call.count > 0 && (what == operation::all_reduce ||
                                                   what == operation::all_gather));
  return each.call.sequence > 0 && each.state == flight_state::finished && all_depend;
}

[[nodiscard]] inline std::int64_t ahead_of(const flight_log& log, const flight_log& first) {
  using key = std::pair<std::uint64_t, std::uint64_t>;
  std::map<key, const flight_record*> calls;
  for (const flight_record& each : first.records) {
    if (synchronises(each)) calls[{each.call.group, each.call.sequence}] = &each;
  }
  // log's clock minus first's.
  std::int64_t ahead = first.unix_minus_steady_ns - log.unix_minus_steady_ns;
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const flight_record& each : log.records) {
    if (!synchronises(each)) continue;
    const auto theirs = calls.find({each.call.group, each.call.sequence});
    if (theirs == calls.end()) continue;
    least = std::max(least, each.entered_ns - theirs->second->finished_ns);
    most = std::min(most, each.finished_ns - theirs->second->entered_ns);
  }
  if (least > most) return ahead;  // not the times of one job
  return std::clamp(ahead, least, most);
}

}  // namespace detail

/// Nanoseconds by which each log's clock is ahead of the first one's.
[[nodiscard]] inline std::vector<std::int64_t> align_clocks(const std::vector<flight_log>& logs) {
  std::vector<std::int64_t> ahead;
  std::map<std::string, std::int64_t> known;  // by host's clock
  for (const flight_log& log : logs) {
    const bool same = log.boot_id == logs.front().boot_id && !log.boot_id.empty();
    if (same || &log == &logs.front()) {
      ahead.push_back(0);
      continue;
    }
    const auto host = known.find(log.boot_id);
    ahead.push_back(host != known.end() && !log.boot_id.empty()
                        ? host->second
                        : detail::ahead_of(log, logs.front()));
    known.emplace(log.boot_id, ahead.back());
  }
  return ahead;
}

}  // namespace parx
