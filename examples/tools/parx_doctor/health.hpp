// health: facts about each rank's host, and the problems that follow from them.
//
// Facts are plain values, sent as JSON. findings() is a pure function of all ranks' facts and of
// the measured links. parx_doctor (examples/tools/) collects the facts, measures and prints.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/common/json_fields.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/socket_address.hpp>

namespace parx::inline PARX_ABI {

struct rank_health {
  int rank = 0;
  std::string host;
  std::string boot_id;            ///< identifies the machine: host names may repeat
  std::string address;            ///< the one that it publishes to other hosts
  std::string version;            ///< of parx, with its ABI tag
  std::string program;            ///< hash of the executable's bytes
  std::vector<int> cpus;          ///< its affinity mask
  int threads = 1;                ///< with which it computes
  std::uint64_t descriptors = 0;  ///< the hard limit on open descriptors
  double clock_ahead_s = 0;       ///< of rank 0's clock
  bool reads_neighbour = true;    ///< process_vm_readv from the next rank of the host works

  static void for_each_field(auto& self, auto&& visit) {
    visit("rank", self.rank);
    visit("host", self.host);
    visit("boot_id", self.boot_id);
    visit("address", self.address);
    visit("version", self.version);
    visit("program", self.program);
    visit("cpus", self.cpus);
    visit("threads", self.threads);
    visit("descriptors", self.descriptors);
    visit("clock_ahead_s", self.clock_ahead_s);
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

/// Reports which ranks have which value of a fact that should be equal on all ranks, if it differs.
template <typename Fact>
void require_equal(std::span<const rank_health> ranks, std::string_view what, Fact fact,
                   std::vector<std::string>& found) {
  std::map<std::string, std::vector<int>> who;
  for (const rank_health& each : ranks) who[fact(each)].push_back(each.rank);
  if (who.size() < 2) return;
  std::string text;
  for (const auto& [value, those] : who) {
    text += formatted("{}{} on ranks {}", text.empty() ? "" : "; ", value, some_of(those));
  }
  found.push_back(formatted("{}: {}", what, text));
}

/// `world`: all ranks of the job. One rank by itself may leave cores to others.
inline void check_host(const std::vector<const rank_health*>& ranks, std::size_t world,
                       std::vector<std::string>& found) {
  const rank_health& first = *ranks.front();
  std::set<int> cpus;
  std::size_t threads = 0;
  bool reads = true;
  for (const rank_health* each : ranks) {
    cpus.insert(each->cpus.begin(), each->cpus.end());
    threads += static_cast<std::size_t>(std::max(each->threads, 1));
    reads = reads && each->reads_neighbour;
  }
  if (ranks.size() > cpus.size()) {
    found.push_back(
        formatted("{}: {} ranks share {} core{}: they take turns, and every collective waits for "
                  "the scheduler. Start fewer, or widen the binding (srun --cpu-bind, "
                  "--cpus-per-task)",
                  first.host, ranks.size(), cpus.size(), cpus.size() == 1 ? "" : "s"));
  } else if (threads > cpus.size()) {
    found.push_back(
        formatted("{}: {} ranks compute with {} threads on {} cores: they take turns. Ask for {} a "
                  "rank (PARX_THREADS, parxrun --threads, srun -c)",
                  first.host, ranks.size(), threads, cpus.size(), cpus.size() / ranks.size()));
  } else if (world > 1 && cpus.size() / ranks.size() * ranks.size() > threads) {
    found.push_back(
        formatted("{}: {} of the {} cores that its ranks may use have no thread: start more ranks, "
                  "or ask for {} threads a rank (PARX_THREADS, parxrun --threads, srun -c)",
                  first.host, cpus.size() - threads, cpus.size(), cpus.size() / ranks.size()));
  }
  if (!reads) {
    found.push_back(formatted(
        "{}: a rank may not read another's memory (process_vm_readv), so large messages "
        "inside the host are copied twice. sysctl kernel.yama.ptrace_scope=0, or docker "
        "run --cap-add SYS_PTRACE, allows it",
        first.host));
  }
}

inline void check_addresses(std::span<const rank_health> ranks, std::size_t hosts,
                              std::vector<std::string>& found) {
  if (hosts < 2) return;
  std::map<std::string, const rank_health*> owner;
  std::set<std::string> told;
  for (const rank_health& each : ranks) {
    if (is_loopback(each.address)) {
      if (told.insert(each.host).second) {
        found.push_back(formatted(
            "{}: its address is {}, which other hosts cannot reach: name its network by "
            "PARX_SOCKET_IFNAME=eth0 or =10.0.0.0/8",
            each.host, each.address));
      }
      continue;
    }
    const auto [first, is_new] = owner.emplace(each.address, &each);
    if (!is_new && first->second->boot_id != each.boot_id && told.insert(each.host).second) {
      found.push_back(formatted(
          "{} and {} both have the address {}: choose another network by PARX_SOCKET_IFNAME",
          first->second->host, each.host, each.address));
    }
  }
}

/// Reports links that are much slower than the median.
inline void check_links(std::span<const link_health> links, std::vector<std::string>& found) {
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
    if (each.seconds > much * usual_s) {
      found.push_back(formatted("ranks {} and {}: {:.0f} us a message, where {:.0f} us is usual",
                                each.rank, each.peer, each.seconds * 1e6, usual_s * 1e6));
    }
    if (each.bytes_per_second * much < usual_rate) {
      found.push_back(formatted("ranks {} and {}: {:.0f} MB/s, where {:.0f} MB/s is usual",
                                each.rank, each.peer, each.bytes_per_second / 1e6,
                                usual_rate / 1e6));
    }
  }
}

}  // namespace detail

/// A sentence for each problem, with what to do about it; empty where there is none. `ranks` are
/// all ranks of the job.
[[nodiscard]] inline std::vector<std::string> findings(std::span<const rank_health> ranks,
                                                       std::span<const link_health> links) {
  std::vector<std::string> found;
  detail::require_equal(
      ranks, "the ranks run different programs (hashes of their files)",
      [](const rank_health& each) { return each.program; }, found);
  detail::require_equal(
      ranks, "the ranks have different versions of parx",
      [](const rank_health& each) { return each.version; }, found);
  const auto hosts = by_host(ranks);
  for (const auto& [id, those] : hosts) detail::check_host(those, ranks.size(), found);
  detail::check_addresses(ranks, hosts.size(), found);
  // An upper estimate: two groups with two descriptors for each peer, and 64 for all else.
  const std::uint64_t descriptors = 64 + 4 * ranks.size();
  for (const rank_health& each : ranks) {
    if (each.descriptors >= descriptors) continue;
    found.push_back(
        formatted("{}: a process may open {} files, and {} ranks need about {}: "
                  "ulimit -n {}",
                  each.host, each.descriptors, ranks.size(), descriptors, descriptors));
    break;
  }
  for (const auto& [id, those] : hosts) {
    constexpr double much_s = 0.1;
    const double ahead = those.front()->clock_ahead_s;
    if (std::abs(ahead) < much_s) continue;
    found.push_back(
        formatted("{}: its clock is {:.1f} s {} of rank 0's: lines of logs and traces "
                  "will seem out of order. Let chrony or ntpd set it",
                  those.front()->host, std::abs(ahead), ahead > 0 ? "ahead" : "behind"));
  }
  detail::check_links(links, found);
  return found;
}

}  // namespace parx::inline PARX_ABI
