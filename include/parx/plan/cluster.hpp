// cluster: the machine, as input of a plan: ranks, hosts, memory, the speed of a rank, and the
// links between hosts and within a host.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <system_error>

#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI {

/// A link. The ranks of a host share its link to other hosts.
struct plan_link {
  double bytes_per_second = 1.25e9;
  double latency = 20e-6;  ///< seconds for each message
};

namespace plan_links {

/// 1 Gbit/s.
inline constexpr plan_link ethernet_1g{1.25e8, 50e-6};
/// 10 Gbit/s.
inline constexpr plan_link ethernet_10g{1.25e9, 20e-6};
/// 25 Gbit/s.
inline constexpr plan_link ethernet_25g{3.125e9, 15e-6};
/// 100 Gbit/s.
inline constexpr plan_link infiniband_100g{1.25e10, 2e-6};
/// Between ranks of one host: the rate of one rank while all others send as well.
inline constexpr plan_link memory{6e9, 2.5e-6};

}  // namespace plan_links

/// Reads "memory", or a rate such as "10gbit" or "200mbit", optionally with the latency in
/// microseconds: "10gbit:100". 1, 10, 25 and 100gbit have a usual latency, others 20 us. Throws
/// usage_error for anything else.
[[nodiscard]] inline plan_link parse_link(std::string_view text) {
  if (text == "memory") return plan_links::memory;
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view speed = text.substr(0, colon);
  double number = 0;
  const auto [unit, code] = std::from_chars(speed.data(), speed.data() + speed.size(), number);
  const std::string_view word(unit, static_cast<std::size_t>(speed.data() + speed.size() - unit));
  double latency = 20;
  bool right = code == std::errc{} && std::isfinite(number) && number > 0 &&
               (word == "gbit" || word == "mbit");
  if (colon < text.size()) {
    const std::string_view rest = text.substr(colon + 1);
    const auto [end, wrong] = std::from_chars(rest.data(), rest.data() + rest.size(), latency);
    right = right && wrong == std::errc{} && end == rest.data() + rest.size() &&
            std::isfinite(latency) && latency >= 0;
  }
  require(right,
          "link \"{}\": give memory, or a speed such as 10gbit or 200mbit, with the microseconds "
          "that a message takes 10gbit:100",
          text);
  const double bytes = number * (word == "gbit" ? 1.25e8 : 1.25e5);
  for (const plan_link& usual : {plan_links::ethernet_1g, plan_links::ethernet_10g,
                                 plan_links::ethernet_25g, plan_links::infiniband_100g}) {
    if (colon == text.size() && bytes == usual.bytes_per_second) return usual;
  }
  return {bytes, latency * 1e-6};
}

/// The memory of this machine in bytes: MemTotal of /proc/meminfo.
[[nodiscard]] inline std::size_t machine_memory() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// The speed of a rank of several threads. Each does 0.88 times what one does alone: measured for
/// steps of GPT, TinyBERT, CNN and MLP on 2 cores (benchmarks/README.md); many threads that are
/// limited by memory's bandwidth do less.
[[nodiscard]] constexpr double flops_of_rank(double flops_of_thread, int threads) noexcept {
  return flops_of_thread * (threads > 1 ? 0.88 * threads : 1);
}

struct cluster {
  int ranks = 1;
  int hosts = 1;  ///< with the same number of ranks each
  plan_link network = plan_links::ethernet_10g;
  plan_link memory_link = plan_links::memory;  ///< between ranks of one host
  double flops = 5e10;             ///< of one rank in matrix products, per second: flops_of_rank
  double memory_bandwidth = 6e9;   ///< of one rank, bytes per second: limits the optimizer's step
  std::size_t memory_of_host = 0;  ///< bytes; 0: this machine's
  bool shares_memory = true;       ///< the ranks of a host can map shared memory

  [[nodiscard]] int ranks_a_host() const noexcept { return ranks / hosts; }
  [[nodiscard]] std::size_t memory_of_rank() const {
    const std::size_t host = memory_of_host > 0 ? memory_of_host : machine_memory();
    return host / static_cast<std::size_t>(ranks_a_host());
  }
};

}  // namespace parx
