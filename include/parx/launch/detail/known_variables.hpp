// The environment variables that parx reads, and a warning about misspelt ones: PARX_TIMEOUTT=60
// would otherwise be ignored silently.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::array known_variables{
    "PARX_ALGO",          "PARX_ALGO_FILE",          "PARX_DEADLOCK",
    "PARX_HOST_ID",       "PARX_LOCAL_RANK",         "PARX_LOCAL_WORLD_SIZE",
    "PARX_LOG_LEVEL",     "PARX_MASTER_ADDR",        "PARX_MASTER_PORT",
    "PARX_NODE_RANK",     "PARX_PROGRESS_BAR",       "PARX_RANK",
    "PARX_RECORDER",      "PARX_RENDEZVOUS_TIMEOUT", "PARX_RUN_ID",
    "PARX_SECRET",        "PARX_SECRET_FILE",        "PARX_SINGLE_COPY",
    "PARX_SOCKET_IFNAME", "PARX_SSH",                "PARX_STORE_KEEPER",
    "PARX_STREAMS",       "PARX_THREADS",            "PARX_TIMEOUT",
    "PARX_TLS",           "PARX_TRACE",              "PARX_TRACE_EVENTS",
    "PARX_TRANSPORT",     "PARX_WARN_AFTER",         "PARX_WORLD_SIZE"};

/// The Levenshtein distance: the letters to insert, delete or replace to turn `a` into `b`.
[[nodiscard, gnu::cold]] inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

/// A sentence about each unknown variable at a distance of at most two from a known one. Other
/// variables that begin with PARX_ may be the program's own.
[[nodiscard, gnu::cold]] inline std::vector<std::string> misspelt_variables(
    const environment& env) {
  std::vector<std::string> sentences;
  for (auto each = env.lower_bound("PARX_"); each != env.end(); ++each) {
    const std::string& name = each->first;
    if (!name.starts_with("PARX_")) break;
    const auto distance = [&](std::string_view known) { return edit_distance(name, known); };
    const std::string_view closest = *std::min_element(
        known_variables.begin(), known_variables.end(),
        [&](std::string_view a, std::string_view b) { return distance(a) < distance(b); });
    if (closest == name || distance(closest) > 2) continue;
    sentences.push_back(formatted("parx reads no variable {}. Did you mean {}?", name, closest));
  }
  return sentences;
}

}  // namespace parx::inline PARX_ABI::detail
