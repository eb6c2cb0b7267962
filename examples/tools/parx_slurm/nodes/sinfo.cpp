#include "tools/parx_slurm/nodes/sinfo.hpp"

#include <parx/core/check.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::slurm {

namespace {

/// GPUs of sinfo's %G: "gpu:a100:4(S:0-1),craynetwork:4" has 4, "gpu:2" 2, "(null)" none.
[[nodiscard]] int gpus_of(std::string_view resources) {
  int sum = 0;
  while (!resources.empty()) {
    std::size_t end = 0;  // a comma inside parentheses separates nothing: (S:0,2)
    for (int depth = 0; end < resources.size(); ++end) {
      if (resources[end] == '(') ++depth;
      if (resources[end] == ')') --depth;
      if (resources[end] == ',' && depth == 0) break;
    }
    std::string_view each = resources.substr(0, end);
    resources.remove_prefix(std::min(end + 1, resources.size()));
    if (!each.starts_with("gpu") || (each.size() > 3 && each[3] != ':')) continue;
    each = each.substr(0, each.find('('));
    sum += each.size() == 3
               ? 1
               : detail::parse_number<int>(each.substr(each.rfind(':') + 1)).value_or(1);
  }
  return sum;
}

[[nodiscard]] std::vector<std::string> features_of(std::string_view text) {
  std::vector<std::string> features;
  if (text == "(null)") return features;
  for (const std::string_view each : detail::split_at(text, ',')) features.emplace_back(each);
  return features;
}

}  // namespace

std::vector<sinfo_node> parse_sinfo(std::string_view output) {
  constexpr std::size_t columns = 11;
  std::vector<sinfo_node> nodes;
  for (const std::string_view line : detail::split_at(output, '\n')) {
    if (line.empty()) continue;
    std::vector<std::string_view> column;
    std::string_view rest = line;
    while (column.size() + 1 < columns) {
      const auto end = rest.find('|');
      require(end != rest.npos, "this is no line of sinfo -o '{}': {}", sinfo_format, line);
      column.push_back(rest.substr(0, end));
      rest.remove_prefix(end + 1);
    }
    const auto cpus = detail::split_at(column[2], '/');  // allocated, idle, other, total
    require(cpus.size() == 4, "sinfo's CPUs \"{}\" are not of the form 4/4/0/8: {}", column[2],
            line);
    const auto number = [](std::string_view text) {
      // 515000+, where several nodes are on a line
      if (text.ends_with('+')) text.remove_suffix(1);
      return detail::parse_number<std::int64_t>(text).value_or(0);
    };
    nodes.push_back({.partition = std::string(column[0]),
                     .name = std::string(column[1]),
                     .idle_cpus = static_cast<int>(number(cpus[1])),
                     .cpus = static_cast<int>(number(cpus[3])),
                     .threads_per_core = std::max(static_cast<int>(number(column[3])), 1),
                     .state = parse_node_state(column[4]),
                     .features = features_of(column[5]),
                     .gpus = gpus_of(column[6]),
                     .memory_mb = number(column[7]),
                     .allocated_mb = 0,
                     .partition_is_up = column[8] == "up",
                     .time_limit = parse_time_limit(column[9]),
                     .reason = rest == "none" ? std::string() : std::string(rest)});
  }
  return nodes;
}

void read_allocated_memory(std::string_view output, std::vector<sinfo_node>& nodes) {
  for (const std::string_view line : detail::split_at(output, '\n')) {
    const auto end = line.find(' ');
    if (end == line.npos) continue;
    const std::string_view name = line.substr(0, end);
    std::string_view value = line.substr(std::min(line.find_first_not_of(' ', end), line.size()));
    value = value.substr(0, value.find(' '));
    const auto mb = detail::parse_number<std::int64_t>(value);
    if (!mb) continue;
    for (sinfo_node& each : nodes) {
      if (each.name == name) each.allocated_mb = *mb;
    }
  }
}

}  // namespace parx::slurm
