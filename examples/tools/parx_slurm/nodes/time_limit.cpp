#include "tools/parx_slurm/nodes/time_limit.hpp"

#include <cstdint>
#include <vector>

#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::slurm {

namespace {

/// All of `text` as numbers between colons; empty where something else is there.
[[nodiscard]] std::vector<std::int64_t> numbers_of(std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (const std::string_view piece : detail::split_at(text, ':')) {
    const auto number = detail::parse_number<std::int64_t>(piece);
    if (!number || *number < 0 || *number > 1'000'000'000) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

std::optional<std::chrono::seconds> parse_time_limit(std::string_view text) {
  using std::chrono::seconds;
  if (text == "infinite" || text == "INFINITE" || text == "UNLIMITED") return no_time_limit;
  if (!text.empty()) {
    const std::int64_t unit = text.back() == 's'   ? 1
                              : text.back() == 'm' ? 60
                              : text.back() == 'h' ? 3600
                              : text.back() == 'd' ? 86400
                                                   : 0;
    if (unit != 0) {
      const auto numbers = numbers_of(text.substr(0, text.size() - 1));
      if (numbers.size() != 1) return std::nullopt;
      return seconds(numbers[0] * unit);
    }
  }
  std::int64_t days = 0;
  const auto dash = text.find('-');
  if (dash != text.npos) {
    const auto number = detail::parse_number<std::int64_t>(text.substr(0, dash));
    if (!number || *number < 0 || *number > 1'000'000) return std::nullopt;
    days = *number;
    text.remove_prefix(dash + 1);
  }
  std::vector<std::int64_t> parts = numbers_of(text);
  if (parts.empty() || parts.size() > 3) return std::nullopt;
  if (dash != text.npos) {
    parts.resize(3);  // hours first
  } else if (parts.size() < 3) {
    parts.insert(parts.begin(), 0);  // minutes first
    parts.resize(3);
  }
  return seconds(days * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]);
}

std::string to_time_limit(std::chrono::seconds time) {
  if (time == no_time_limit) return "infinite";
  const std::int64_t s = time.count();
  const std::int64_t days = s / 86400, hours = s / 3600 % 24, minutes = s / 60 % 60;
  if (days > 0) return formatted("{}-{:02}:{:02}:{:02}", days, hours, minutes, s % 60);
  if (hours > 0) return formatted("{}:{:02}:{:02}", hours, minutes, s % 60);
  return formatted("{}:{:02}", minutes, s % 60);
}

}  // namespace parx::slurm
