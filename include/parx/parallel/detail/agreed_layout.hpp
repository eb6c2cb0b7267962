// agreed_layout: the layout of a parallel model as it is on these ranks, the same on all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/source.hpp>
#include <parx/mesh/layout.hpp>
#include <parx/plan/layout.hpp>

namespace parx::inline PARX_ABI::detail {

/// Collective. Throws usage_error on all ranks, with the texts of two that differ.
inline void require_same(process_group& world, const char* what, const std::string& mine,
                         call_site site) {
  const std::uint64_t digest[] = {detail::fnv1a(mine)};
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  all_gather(world, digest, all, {}, site);
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](std::uint64_t each) { return each != all.front(); });
  if (other == all.end()) return;
  std::string first = mine, different = mine;
  const int rank = static_cast<int>(other - all.begin());
  broadcast_object(world, first, {.root = 0}, site);
  broadcast_object(world, different, {.root = rank}, site);
  throw_usage(
      "parallel at {}: rank {} was given the {} \"{}\", rank 0 \"{}\": give all ranks the same",
      site, rank, what, different, first);
}

/// Whether each host has as many ranks as any other, of the ranks on these hosts: hybrid needs
/// that.
[[nodiscard]] inline bool are_even(std::span<const int> hosts) {
  std::map<int, int> ranks;
  for (const int host : hosts) ++ranks[host];
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](const auto& each) { return each.second == ranks.begin()->second; });
}

/// All ranks look at the groups of all, and come to the same result.
inline void require_even_hosts(const mesh_layout& grid, const layout& how,
                               const process_group& world, call_site site) {
  const std::vector<int> hosts = world.hosts();
  const std::size_t dp = grid.axis("dp");
  for (int rank = 0; rank < world.size(); ++rank) {
    if (grid.coordinate(rank, dp) != 0) continue;
    std::vector<int> of_line;
    for (const int other : grid.line(rank, std::span(&dp, 1))) {
      of_line.push_back(hosts[static_cast<std::size_t>(other)]);
    }
    require(are_even(of_line),
            "layout \"{}\" at {}: hybrid shards the model over the ranks of each host that have "
            "other samples, and their numbers differ from host to host: start equally many ranks "
            "on all hosts, or take fsdp",
            to_string(how), site);
  }
}

[[nodiscard]] inline std::vector<mesh_axis> axes_of(const layout& how) {
  return {{"pp", how.pp}, {"dp", how.dp}, {"tp", how.tp}};
}

/// Collective over `world`. `how` with its dp, and with what choose() makes of "auto". Throws
/// usage_error on all ranks where they were given different layouts, or where these do not permit
/// one.
[[nodiscard]] inline layout agreed_layout(layout how, process_group& world,
                                          function_ref<layout()> choose, call_site site) {
  require_same(world, "layout", to_string(how), site);
  if (how.is_automatic) {  // hosts may differ in memory: rank 0's choice counts
    std::string chosen = world.rank() == 0 ? to_string(choose()) : "";
    broadcast_object(world, chosen, {.root = 0}, site);
    how = layout::parse(chosen);
  }
  validate(how);
  const int cut = how.pp * how.tp;
  const std::string text = to_string(how);
  require(world.size() % cut == 0,
          "layout \"{}\" at {}: pp={} times tp={} needs a multiple of {} ranks, and the job has "
          "{}",
          text, site, how.pp, how.tp, cut, world.size());
  require(how.dp == remaining_ranks || how.dp * cut == world.size(),
          "layout \"{}\" at {}: it has {} ranks, and the job has {}: leave dp= out, and it takes "
          "what is left",
          text, site, how.dp * cut, world.size());
  how.dp = world.size() / cut;
  validate(how);
  if (how.hybrid) {
    require_even_hosts(mesh_layout(axes_of(how), world.hosts(), site), how, world, site);
  }
  return how;
}

}  // namespace parx::detail
