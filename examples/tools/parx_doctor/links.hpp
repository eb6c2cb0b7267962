// For parx_doctor: what the ranks of a job find out together: whether they can read each other's
// memory, how their clocks differ, and the speed of the links between hosts.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/parx_doctor/health.hpp"
#include <parx/comm.hpp>
#include <parx/core/unix_time.hpp>

namespace examples {

using parx::link_health;
using parx::rank_health;

/// Collective. Whether this rank can read the memory of the next one on its host.
inline bool reads_neighbour(parx::process_group& world, const std::vector<rank_health>& ranks) {
  static constexpr std::uint64_t number = 0x7061727864726f6b;
  static const std::uint64_t own = number;
  const std::array<std::uint64_t, 2> mine{static_cast<std::uint64_t>(::getpid()),
                                          std::bit_cast<std::uint64_t>(&own)};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(world.size()));
  parx::all_gather(world, mine, all);
  const auto here = [&](int rank) { return ranks[static_cast<std::size_t>(rank)].boot_id; };
  int next = (world.rank() + 1) % world.size();
  while (here(next) != here(world.rank())) next = (next + 1) % world.size();
  std::uint64_t found = 0;
  const iovec to{&found, sizeof found};
  const auto* const theirs = &all[2 * static_cast<std::size_t>(next)];
  const iovec from{std::bit_cast<void*>(theirs[1]), sizeof found};
  const auto got = ::process_vm_readv(static_cast<pid_t>(theirs[0]), &to, 1, &from, 1, 0);
  parx::barrier(world);  // no rank may exit while it can still be read
  return next == world.rank() || (got == sizeof found && found == number);
}

/// Called by both ranks: `rank` sends and `peer` answers. Only the result on `rank` is meaningful.
inline link_health measure_link(parx::process_group& world, int rank, int peer) {
  const bool leads = world.rank() == rank;
  const int other = leads ? peer : rank;
  const auto round_trip = [&](std::vector<double>& message) {
    const auto begin = std::chrono::steady_clock::now();
    if (leads) parx::send(world, message, other);
    parx::recv(world, message, other);
    if (!leads) parx::send(world, message, other);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<double> small(1), large(1 << 19);
  double shortest = 1e9, quickest = 1e9;
  for (int i = 0; i < 50; ++i) shortest = std::min(shortest, round_trip(small));
  for (int i = 0; i < 5; ++i) quickest = std::min(quickest, round_trip(large));
  return {.rank = rank,
          .peer = peer,
          .seconds = shortest / 2,
          .bytes_per_second = 2 * sizeof(double) * static_cast<double>(large.size()) / quickest};
}

/// Collective. How far this rank's clock is ahead of rank 0's, from the shortest of ten round
/// trips.
inline double clock_ahead(parx::process_group& world) {
  double ahead = 0;
  for (int rank = 1; rank < world.size(); ++rank) {
    double shortest = 1e9;
    for (int i = 0; i < 10 && (world.rank() == 0 || world.rank() == rank); ++i) {
      std::array<double, 1> time{parx::unix_seconds()};
      if (world.rank() == 0) {
        parx::recv(world, time, rank);
        time[0] = parx::unix_seconds();
        parx::send(world, time, rank);
        continue;
      }
      const double sent = time[0];
      parx::send(world, time, 0);
      parx::recv(world, time, 0);
      const double back = parx::unix_seconds();
      if (back - sent > shortest) continue;
      shortest = back - sent;
      ahead = (sent + back) / 2 - time[0];
    }
  }
  return ahead;
}

/// Collective. Measures the link of each pair of hosts, between their first ranks. In each round
/// every host is in at most one pair (the circle method of tournaments), so links are measured
/// undisturbed.
inline std::vector<link_health> measure_links(parx::process_group& world,
                                              const std::vector<rank_health>& ranks) {
  std::vector<int> firsts;
  for (const auto& [id, those] : parx::by_host(ranks)) firsts.push_back(those.front()->rank);
  if (firsts.size() % 2 == 1) firsts.push_back(-1);  // its partner pauses for a round
  std::vector<link_health> mine;
  for (std::size_t round = 0; round + 1 < firsts.size(); ++round) {
    for (std::size_t i = 0; i < firsts.size() / 2; ++i) {
      const int a = firsts[i], b = firsts[firsts.size() - 1 - i];
      if (a < 0 || b < 0 || (world.rank() != a && world.rank() != b)) continue;
      const auto seen = measure_link(world, std::min(a, b), std::max(a, b));
      if (world.rank() == seen.rank) mine.push_back(seen);
    }
    std::rotate(firsts.begin() + 1, firsts.end() - 1, firsts.end());
    parx::barrier(world);
  }
  std::vector<link_health> all;
  for (const auto& list : parx::all_gather_object(world, mine)) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

}  // namespace examples
