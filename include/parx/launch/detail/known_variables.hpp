// The environment variables that a user may set for a program or for parxrun, and a warning about
// misspelt ones: PARX_TIMEOUTT=60 would otherwise be ignored silently. What parxrun alone sets and
// nobody writes by hand (PARX_AGENT, PARX_GENERATION) need not be among them.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/did_you_mean.hpp>
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::array known_variables{
    "PARX_ALGO",             "PARX_ALGO_FILE",     "PARX_BF16",
    "PARX_DEADLOCK",         "PARX_HOST_ID",       "PARX_LOCAL_RANK",
    "PARX_LOCAL_WORLD_SIZE", "PARX_LOG_LEVEL",     "PARX_MASTER_ADDR",
    "PARX_MASTER_PORT",      "PARX_NODE_RANK",     "PARX_PROGRESS_BAR",
    "PARX_RANK",             "PARX_RECORDER",      "PARX_RENDEZVOUS_TIMEOUT",
    "PARX_RUN_ID",           "PARX_SECRET",        "PARX_SECRET_FILE",
    "PARX_SINGLE_COPY",      "PARX_SOCKET_IFNAME", "PARX_SSH",
    "PARX_STORE_HOSTED_BY",  "PARX_STREAMS",       "PARX_THREADS",
    "PARX_TIMEOUT",          "PARX_TLS",           "PARX_TRACE",
    "PARX_TRACE_EVENTS",     "PARX_TRANSPORT",     "PARX_WARN_AFTER",
    "PARX_WORLD_SIZE"};

/// A sentence about each unknown variable at a distance of at most two from a known one. Other
/// variables that begin with PARX_ may be the program's own.
[[nodiscard, gnu::cold]] inline std::vector<std::string> misspelt_variables(
    const environment& env) {
  std::vector<std::string> sentences;
  for (auto each = env.lower_bound("PARX_"); each != env.end(); ++each) {
    const std::string& name = each->first;
    if (!name.starts_with("PARX_")) break;
    const auto distance = [&](std::string_view known) { return edits_between(name, known); };
    const std::string_view closest = *std::min_element(
        known_variables.begin(), known_variables.end(),
        [&](std::string_view a, std::string_view b) { return distance(a) < distance(b); });
    if (closest == name || distance(closest) > 2) continue;
    sentences.push_back(formatted("parx reads no variable {}. Did you mean {}?", name, closest));
  }
  return sentences;
}

}  // namespace parx::inline PARX_ABI::detail
