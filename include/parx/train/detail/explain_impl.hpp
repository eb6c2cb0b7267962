// Definitions of explain.hpp.
#pragma once

#include <parx/train/explain.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE std::string size_text(std::size_t count) {
  const auto bytes = static_cast<double>(count);
  if (bytes >= 1 << 30) return formatted("{:.2f} GiB", bytes / (1 << 30));
  if (bytes >= 1 << 20) return formatted("{:.1f} MiB", bytes / (1 << 20));
  return formatted("{:.1f} KiB", bytes / 1024);
}

PARX_INLINE std::string frequency_text(strategy when, std::uint64_t steps) {
  if (when == strategy::epoch) return "after each epoch";
  return when == strategy::no || steps == 0 ? "never" : formatted("every {} steps", steps);
}

PARX_INLINE std::string ranks_text(const std::vector<int>& host_of_rank) {
  std::vector<int> ranks;
  for (const int host : host_of_rank) {
    const auto index = static_cast<std::size_t>(host);
    if (ranks.size() <= index) ranks.resize(index + 1);
    ++ranks[index];
  }
  if (ranks.size() < 2) return formatted("{} on one host", host_of_rank.size());
  std::string sum;
  for (const int each : ranks) sum += formatted("{}{}", sum.empty() ? "" : " + ", each);
  return formatted("{} on {} hosts ({})", host_of_rank.size(), ranks.size(), sum);
}

}  // namespace parx::train::detail
