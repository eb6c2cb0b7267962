// health: facts about each rank's host, and the problems that follow from them.
//
// Facts are plain values, sent as JSON. findings() is a pure function of all ranks' facts and of
// the measured links. parx_doctor (examples/tools/) collects the facts, measures and prints.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/common/host_facts.hpp"
#include "tools/common/host_tests.hpp"
#include "tools/common/json_fields.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/socket_address.hpp>

namespace parx::inline PARX_ABI {

struct rank_health {
  int rank = 0;
  slurm::host_facts host;       ///< as this rank sees it
  std::string boot_id;          ///< identifies the machine: host names may repeat
  std::string version;          ///< of parx, with its ABI tag
  std::vector<int> cpus;        ///< its affinity mask
  int threads = 1;              ///< with which it computes
  bool reads_neighbour = true;  ///< process_vm_readv from the next rank of the host works

  static void for_each_field(auto& self, auto&& visit) {
    visit("rank", self.rank);
    visit("host", self.host);
    visit("boot_id", self.boot_id);
    visit("version", self.version);
    visit("cpus", self.cpus);
    visit("threads", self.threads);
    visit("reads_neighbour", self.reads_neighbour);
  }
  /// For all_gather_object.
  [[nodiscard]] std::string to_bytes() const { return json::dump(json::to_json(*this)); }
  /// Throws json::error for bytes that are not from to_bytes().
  [[nodiscard]] static rank_health from_bytes(std::span<const std::byte> bytes) {
    return json::from_json<rank_health>(
        json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  }
};

/// A measured link between two ranks of different hosts.
struct link_health {
  int rank = 0;
  int peer = 0;
  double seconds = 0;           ///< one-way latency of a message of 8 bytes
  double bytes_per_second = 0;  ///< with a message of some MiB
};

/// The ranks of each host, by its boot id, in rank order.
[[nodiscard]] inline std::map<std::string, std::vector<const rank_health*>> by_host(
    std::span<const rank_health> ranks) {
  std::map<std::string, std::vector<const rank_health*>> hosts;
  for (const rank_health& each : ranks) hosts[each.boot_id].push_back(&each);
  return hosts;
}

namespace detail {

/// "0, 1, 2 and 9 more"
[[nodiscard]] inline std::string some_of(const std::vector<int>& ranks) {
  constexpr std::size_t shown = 4;
  if (ranks.size() <= shown + 1) return joined_text(ranks);
  return formatted("{} and {} more", joined_text(std::span(ranks).first(shown)),
                   ranks.size() - shown);
}

using slurm::finding;

/// Reports which ranks have which value of a fact that should be equal on all ranks, if it differs.
template <typename Fact>
void require_equal(std::span<const rank_health> ranks, std::string_view what, Fact fact,
                   std::vector<finding>& found) {
  std::map<std::string, std::vector<int>> who;
  for (const rank_health& each : ranks) who[fact(each)].push_back(each.rank);
  if (who.size() < 2) return;
  std::string text;
  for (const auto& [value, those] : who) {
    text += formatted("{}{} on ranks {}", text.empty() ? "" : "; ", value, some_of(those));
  }
  found.push_back({.node = "the ranks", .fact = formatted("{}: {}", what, text)});
}

/// `world`: all ranks of the job. One rank by itself may leave cores to others.
inline void check_host(const std::vector<const rank_health*>& ranks, std::size_t world,
                       std::size_t hosts, std::vector<finding>& found) {
  slurm::host_facts host = ranks.front()->host;
  std::set<int> cpus;
  int threads = 0, most = 1;
  bool reads = true;
  for (const rank_health* each : ranks) {
    cpus.insert(each->cpus.begin(), each->cpus.end());
    threads += std::max(each->threads, 1);
    most = std::max(most, each->threads);
    reads = reads && each->reads_neighbour;
    host.files = std::min(host.files, each->host.files);
  }
  host.cores = static_cast<int>(cpus.size());  // of all its ranks, which may be bound apart
  const auto count = static_cast<int>(ranks.size());
  slurm::add_findings(host, {.ranks = count, .threads = most, .nodes = static_cast<int>(hosts)},
                      found);
  if (world > 1 && host.cores / count * count > threads) {
    found.push_back({.node = host.node,
                     .fact = formatted("{} of the {} cores that its ranks may use have no thread",
                                       host.cores - threads, host.cores),
                     .remedy = formatted("Start more ranks, or ask for {} threads a rank "
                                         "(PARX_THREADS, parxrun --threads, srun -c)",
                                         host.cores / count),
                     .fatal = false});
  }
  if (!reads) {
    found.push_back({.node = host.node,
                     .fact = "a rank may not read another's memory (process_vm_readv), so large "
                             "messages inside the host are copied twice",
                     .remedy = "sysctl kernel.yama.ptrace_scope=0, or docker run --cap-add "
                               "SYS_PTRACE, allows it",
                     .fatal = false});
  }
}

/// Reports hosts that publish the same address; of loopback ones host_tests.hpp tells.
inline void check_addresses(std::span<const rank_health> ranks, std::vector<finding>& found) {
  std::map<std::string, const rank_health*> owner;
  std::set<std::string> told;
  for (const rank_health& each : ranks) {
    const auto [first, is_new] = owner.emplace(each.host.address, &each);
    if (is_new || is_loopback(each.host.address)) continue;
    if (first->second->boot_id != each.boot_id && told.insert(each.host.node).second) {
      found.push_back({.node = each.host.node,
                       .fact = formatted("it has the address {}, and so has {}", each.host.address,
                                         first->second->host.node),
                       .remedy = "Choose another network by PARX_SOCKET_IFNAME"});
    }
  }
}

/// Reports links that are much slower than the median.
inline void check_links(std::span<const link_health> links, std::vector<finding>& found) {
  constexpr double much = 3;
  if (links.size() < 3) return;
  const auto median = [&](auto value) {
    std::vector<double> sorted;
    for (const link_health& each : links) sorted.push_back(value(each));
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  };
  const double usual_s = median([](const link_health& each) { return each.seconds; });
  const double usual_rate = median([](const link_health& each) { return each.bytes_per_second; });
  for (const link_health& each : links) {
    const std::string who = formatted("ranks {} and {}", each.rank, each.peer);
    if (each.seconds > much * usual_s) {
      found.push_back({.node = who,
                       .fact = formatted("{:.0f} us a message, where {:.0f} us is usual",
                                         each.seconds * 1e6, usual_s * 1e6),
                       .fatal = false});
    }
    if (each.bytes_per_second * much < usual_rate) {
      found.push_back({.node = who,
                       .fact = formatted("{:.0f} MB/s, where {:.0f} MB/s is usual",
                                         each.bytes_per_second / 1e6, usual_rate / 1e6),
                       .fatal = false});
    }
  }
}

}  // namespace detail

/// What would hurt the job; empty where nothing would. `ranks` are all ranks of the job.
[[nodiscard]] inline std::vector<slurm::finding> findings(std::span<const rank_health> ranks,
                                                          std::span<const link_health> links) {
  std::vector<slurm::finding> found;
  detail::require_equal(
      ranks, "they run different programs (hashes of their files)",
      [](const rank_health& each) { return each.host.program_hash; }, found);
  detail::require_equal(
      ranks, "they have different versions of parx",
      [](const rank_health& each) { return each.version; }, found);
  const auto hosts = by_host(ranks);
  for (const auto& [id, those] : hosts) {
    detail::check_host(those, ranks.size(), hosts.size(), found);
    slurm::add_clock(those.front()->host.node, those.front()->host.clock_ahead_s, "rank 0", found);
  }
  detail::check_addresses(ranks, found);
  detail::check_links(links, found);
  return found;
}

}  // namespace parx::inline PARX_ABI
