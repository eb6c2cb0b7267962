#include "tools/parx_slurm/nodes/where.hpp"

#include <set>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::slurm {

std::string to_string(obstacle why) {
  switch (why) {
    case obstacle::none:
      return "usable";
    case obstacle::busy:
      return "busy";
    case obstacle::planned:
      return "kept for a waiting job";
    case obstacle::maintenance:
      return "in maintenance";
    case obstacle::reserved:
      return "reserved";
    case obstacle::drained:
      return "drained";
    case obstacle::down:
      return "down";
    case obstacle::too_few_cores:
      return "too few cores";
    case obstacle::too_little_memory:
      return "too little memory";
    case obstacle::gpu:
      return "with GPUs";
    case obstacle::processor:
      return "wrong processor";
    case obstacle::minority_hardware:
      return "of another kind";
  }
  return "unknown";
}

namespace {

/// Whether it goes away by waiting.
bool is_temporary(obstacle why) noexcept {
  return why == obstacle::busy || why == obstacle::planned || why == obstacle::reserved ||
         why == obstacle::maintenance;
}

}  // namespace

namespace detail {

std::string refusal_of(const partition& rules, const node_request& request) {
  if (!rules.is_up) return "the partition is down";
  if (rules.root_only && !request.is_root) return "only for root";
  if (rules.needs_reservation) return "only with a reservation";
  if (!rules.allowed_groups.empty() && !request.is_root &&
      std::none_of(request.groups.begin(), request.groups.end(),
                   [&](const std::string& each) { return has(rules.allowed_groups, each); })) {
    return "only for the group " + joined_text(rules.allowed_groups, " or ");
  }
  if (!request.account.empty()) {
    const bool allowed =
        rules.allowed_accounts.empty() || has(rules.allowed_accounts, request.account);
    if (!allowed || has(rules.denied_accounts, request.account)) {
      return "not for the account " + request.account;
    }
  }
  if (request.time > rules.max_time) {
    return "its limit is " + to_time_limit(rules.max_time);
  }
  if (request.nodes > rules.max_nodes) {
    return formatted("at most {} node{} a job", rules.max_nodes, rules.max_nodes == 1 ? "" : "s");
  }
  if (request.nodes < rules.min_nodes) return formatted("at least {} nodes a job", rules.min_nodes);
  if (request.cores > rules.max_cpus_per_node) {
    return formatted("at most {} CPUs of a node", rules.max_cpus_per_node);
  }
  if (request.memory_mb > rules.max_memory_mb) {
    return formatted("at most {} MB of a node", rules.max_memory_mb);
  }
  return {};
}

}  // namespace detail

namespace {

[[nodiscard]] obstacle obstacle_of(const sinfo_node& node, const partition& rules,
                                   const node_request& request) {
  // First what waiting does not change.
  if (node.state.is == availability::drained) return obstacle::drained;
  if (node.state.is == availability::down) return obstacle::down;
  if (node.gpus > 0 && !request.gpu_nodes) return obstacle::gpu;
  const auto level = level_of_features(node.features);
  if (level && *level < request.level) return obstacle::processor;
  if (node.cores() < request.cores) return obstacle::too_few_cores;
  if (node.memory_is_known() && node.memory_mb < request.memory_mb) {
    return obstacle::too_little_memory;
  }
  if (node.state.is == availability::maintenance) return obstacle::maintenance;
  if (node.state.is == availability::reserved) return obstacle::reserved;
  if (node.state.is == availability::planned) return obstacle::planned;
  const bool in_part = node.idle_cpus < node.cpus;
  if (node.state.is == availability::busy || node.idle_cores() < request.cores ||
      (rules.whole_nodes && in_part) ||
      (node.memory_is_known() && node.memory_mb - node.allocated_mb < request.memory_mb)) {
    return obstacle::busy;
  }
  return obstacle::none;
}

/// What makes nodes alike: features and cores.
[[nodiscard]] std::pair<std::vector<std::string>, int> kind_of(const sinfo_node& node) {
  return {node.features, node.cores()};
}

[[nodiscard]] std::size_t kinds_of(const std::vector<sinfo_node>& nodes) {
  std::set<std::pair<std::vector<std::string>, int>> kinds;
  for (const sinfo_node& each : nodes) kinds.insert(kind_of(each));
  return kinds.size();
}

/// Keeps the nodes of one kind, the most frequent, where there are `wanted` of it.
void keep_one_kind(candidate& each, std::size_t wanted) {
  std::map<std::pair<std::vector<std::string>, int>, std::size_t> counts;
  for (const sinfo_node& node : each.usable) ++counts[kind_of(node)];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (counts.size() < 2 || most->second < wanted) return;
  std::erase_if(each.usable, [&](const sinfo_node& node) {
    if (kind_of(node) == most->first) return false;
    each.others[obstacle::minority_hardware].push_back(node.name);
    return true;
  });
}

}  // namespace

std::vector<candidate> candidates(const std::vector<sinfo_node>& nodes,
                                  const std::vector<partition>& partitions,
                                  const node_request& request) {
  require(request.nodes >= 1, "-N {}: at least one node", request.nodes);
  require(request.cores >= 1, "--cores {}: at least one core", request.cores);
  std::vector<candidate> all;
  std::vector<std::string> names;
  for (const sinfo_node& node : nodes) {
    if (!detail::has(names, node.partition)) names.push_back(node.partition);
    if (!request.partition.empty() && node.partition != request.partition) continue;
    auto found = std::find_if(all.begin(), all.end(), [&](const candidate& each) {
      return each.rules.name == node.partition;
    });
    if (found == all.end()) {
      candidate fresh;
      fresh.rules.name = node.partition;
      fresh.rules.is_up = node.partition_is_up;
      fresh.rules.max_time = node.time_limit.value_or(no_time_limit);
      for (const partition& each : partitions) {
        if (each.name == node.partition) fresh.rules = each;
      }
      fresh.refusal = detail::refusal_of(fresh.rules, request);
      all.push_back(std::move(fresh));
      found = all.end() - 1;
    }
    ++found->nodes;
    const obstacle why = obstacle_of(node, found->rules, request);
    if (why == obstacle::none) {
      found->usable.push_back(node);
    } else {
      found->others[why].push_back(node.name);
      if (is_temporary(why)) ++found->later;
    }
  }
  for (candidate& each : all) {
    keep_one_kind(each, static_cast<std::size_t>(request.nodes));
  }
  require(request.partition.empty() || !all.empty(),
          "there is no partition \"{}\" (Slurm minds upper and lower case); there are: {}",
          request.partition, joined_text(names));
  return all;
}

void rank(std::vector<candidate>& all, const node_request& request,
          std::chrono::system_clock::time_point now) {
  struct key {
    int refused;
    std::int64_t minutes;
    std::size_t kinds;
    double price;
    std::int64_t cores;
    auto operator<=>(const key&) const = default;
  };
  const auto key_of = [&](const candidate& each) {
    std::int64_t minutes = each.fits_now(request) ? 0 : std::int64_t{1} << 40;
    if (each.start.at) {
      minutes = std::max<std::int64_t>(
          std::chrono::duration_cast<std::chrono::minutes>(*each.start.at - now).count(), 0);
    }
    std::int64_t cores = 0;
    for (const sinfo_node& node : each.usable) cores += node.idle_cores();
    const int refused = !each.refusal.empty()         ? 3
                        : !each.start.refusal.empty() ? 2
                        : !each.may_fit(request)      ? 1
                                                      : 0;
    return key{refused, minutes, std::max<std::size_t>(kinds_of(each.usable), 1),
               each.rules.cpu_price, -cores};
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const candidate& a, const candidate& b) { return key_of(a) < key_of(b); });
}

}  // namespace parx::slurm
