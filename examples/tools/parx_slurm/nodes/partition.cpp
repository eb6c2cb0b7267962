#include "tools/parx_slurm/nodes/partition.hpp"

#include <charconv>

#include "tools/parx_slurm/nodes/record.hpp"
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::slurm {

namespace detail {

std::vector<std::string> names_of(std::string_view list) {
  std::vector<std::string> names;
  if (list == "ALL" || list == "(null)") return names;
  for (const std::string_view each : split_at(list, ',')) names.emplace_back(each);
  return names;
}

}  // namespace detail

namespace {

/// "CPU=4.0,Mem=0.25G": 4.
[[nodiscard]] double cpu_weight(std::string_view weights) {
  for (const std::string_view each : detail::split_at(weights, ',')) {
    if (!each.starts_with("CPU=") && !each.starts_with("cpu=")) continue;
    double value = 1;
    const std::string_view number = each.substr(4);
    const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (code == std::errc{} && value > 0) return value;
  }
  return 1;
}

}  // namespace

std::vector<partition> parse_partitions(std::string_view output) {
  std::vector<partition> all;
  for (const std::string_view line : detail::split_at(output, '\n')) {
    const auto fields = parse_record(line);
    const auto field = [&](std::string_view name) {
      const auto found = fields.find(name);
      return found == fields.end() ? std::string_view() : std::string_view(found->second);
    };
    if (field("PartitionName").empty()) continue;
    partition each;
    each.name = field("PartitionName");
    const auto number = [&](std::string_view name, auto& value) {
      using type = std::remove_reference_t<decltype(value)>;
      if (const auto given = detail::parse_number<type>(field(name))) value = *given;
    };
    each.is_default = field("Default") == "YES";
    each.is_up = field("State").empty() || field("State") == "UP";
    each.root_only = field("RootOnly") == "YES";
    each.needs_reservation = field("ReqResv") == "YES";
    each.whole_nodes = field("OverSubscribe").starts_with("EXCLUSIVE");
    each.max_time = parse_time_limit(field("MaxTime")).value_or(no_time_limit);
    number("MinNodes", each.min_nodes);
    number("MaxNodes", each.max_nodes);
    number("MaxCPUsPerNode", each.max_cpus_per_node);
    number("MaxMemPerNode", each.max_memory_mb);
    if (!field("AllowGroups").empty()) each.allowed_groups = detail::names_of(field("AllowGroups"));
    if (!field("AllowAccounts").empty()) {
      each.allowed_accounts = detail::names_of(field("AllowAccounts"));
    }
    each.denied_accounts = detail::names_of(field("DenyAccounts"));
    each.cpu_price = cpu_weight(field("TRESBillingWeights"));
    all.push_back(std::move(each));
  }
  return all;
}

}  // namespace parx::slurm
