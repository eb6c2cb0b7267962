// Jobs for tests: ranks are threads, joined by the network under test.
#pragma once

#include <boost/test/unit_test.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <parx/comm.hpp>
#include <parx/store/hash.hpp>
#include <parx/transport/hybrid.hpp>
#include <parx/transport/inproc.hpp>

namespace jobs {

/// shm_ring: shared memory when the kernel forbids reading another process's memory.
/// tcp_striped: several connections for each link; rank 0 asks for 3, the others for 4.
/// hybrid: ranks 0, 2, 4, ... act as one host and 1, 3, 5, ... as another.
/// ucx_tcp, ucx_memory (by rendezvous): each rank acts as a host. Only for tests that include
/// transport/ucx.hpp.
enum class kind { inproc, tcp, tcp_striped, shm, shm_ring, hybrid, ucx_tcp, ucx_memory };

inline std::string name_of(kind which) {
  switch (which) {
    case kind::inproc: return "inproc";
    case kind::tcp: return "tcp";
    case kind::tcp_striped: return "tcp over several connections";
    case kind::shm: return "shm";
    case kind::shm_ring: return "shm without single copies";
    case kind::hybrid: return "hybrid";
    case kind::ucx_tcp: return "UCX over TCP";
    case kind::ucx_memory: return "UCX over shared memory";
  }
  return "unknown";
}

/// Those that every operation and every failure is tried over.
inline constexpr kind common_kinds[] = {kind::inproc, kind::tcp, kind::shm, kind::hybrid};

using body = std::function<void(parx::process_group&)>;

/// For a rank, where an assertion of Boost.Test may not be used.
inline void check(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("wrong result: " + what);
}

/// Runs body on every rank and returns the text of each rank's exception, "" if none.
inline std::vector<std::string> run_collecting(kind which, int world, const body& run,
                                               parx::group_options options = {}) {
  // Measuring between hosts takes a tenth of a second, each time.
  const bool has_hosts =
      which == kind::hybrid || which == kind::ucx_tcp || which == kind::ucx_memory;
  if (has_hosts && !options.choice.costs) options.choice.costs = parx::link_costs{};
  std::vector<std::string> failures(static_cast<std::size_t>(world));
  const auto network = std::make_shared<parx::inproc_network>(world);
  const auto store = std::make_shared<parx::hash_store>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      auto& failure = failures[static_cast<std::size_t>(rank)];
      try {
        std::unique_ptr<parx::links> links;
        if (which == kind::inproc) {
          links = network->attach(rank);
        } else {
          parx::detail::endpoint_options given{.job_store = store,
                                               .store_host = "127.0.0.1",
                                               .rank = rank,
                                               .world_size = world,
                                               .local_world_size = world,
                                               .may_spin = false,
                                               .env = {}};
          if (which == kind::tcp || which == kind::tcp_striped) given.env["PARX_TRANSPORT"] = "tcp";
          if (which == kind::tcp_striped) given.env["PARX_STREAMS"] = rank == 0 ? "3" : "4";
          if (which == kind::shm_ring) given.env["PARX_SINGLE_COPY"] = "0";
          if (which == kind::hybrid) given.env["PARX_HOST_ID"] = rank % 2 == 0 ? "even" : "odd";
          if (which == kind::ucx_tcp || which == kind::ucx_memory) {
            given.env["PARX_TRANSPORT"] = "ucx";
            given.env["PARX_HOST_ID"] = std::to_string(rank);
            given.env["UCX_TLS"] = which == kind::ucx_tcp ? "tcp" : "self,sm";
            if (which == kind::ucx_memory) given.env["UCX_RNDV_THRESH"] = "4096";
          }
          links = std::make_unique<parx::hybrid_links>(
              std::make_shared<parx::detail::endpoint>(std::move(given)));
        }
        parx::process_group group(std::move(links), "world", options);
        try {
          run(group);
        } catch (const std::exception& thrown) {
          failure = thrown.what();
          if (!group.closed() || group.awaits_reason()) {
            group.abort("rank " + std::to_string(rank) + ": " + failure);
          }
        }
      } catch (const std::exception& thrown) {
        failure = std::string("while joining: ") + thrown.what();
      }
    });
  }
  for (auto& each : threads) each.join();
  return failures;
}

/// The first exception text of any rank, or "".
inline std::string run(kind which, int world, const body& run_rank,
                       parx::group_options options = {}) {
  for (const auto& failure : run_collecting(which, world, run_rank, options)) {
    if (!failure.empty()) return failure;
  }
  return {};
}

/// Runs body on every rank, over each of the networks.
inline void expect_success(std::span<const kind> kinds, int world, const body& run_rank,
                           parx::group_options options = {}) {
  for (const kind each : kinds) {
    const std::string failure = run(each, world, run_rank, options);
    BOOST_TEST(failure == "", name_of(each) << ": " << failure);
  }
}
inline void expect_success(int world, const body& run_rank, parx::group_options options = {}) {
  expect_success(common_kinds, world, run_rank, options);
}

}  // namespace jobs
