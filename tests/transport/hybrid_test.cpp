// What a process's groups leave behind, and how they sleep when descriptors are few.
#include <parx/transport/hybrid.hpp>

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <parx/comm.hpp>
#include <parx/store/hash.hpp>

#include "comm/jobs.hpp"

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(connections_that_nobody_claimed_go_with_their_group) {
  for (const auto kind : {jobs::kind::tcp, jobs::kind::shm}) {
    std::size_t before = 0;
    std::size_t after = 0;
    const auto failure = jobs::run(kind, 3, [&](parx::process_group& world) {
      const std::vector<int> all{0, 1, 2};
      const auto round = [&] {
        {
          auto group = world.subgroup(all);
          std::vector<int> x{group.rank()};
          // Rank 2 opens a link to rank 0, which takes the connection in with those of the barrier
          // and never looks at it.
          if (group.rank() == 1) parx::send(group, x, 2);
          if (group.rank() == 2) parx::require(parx::recv_any(group, x) == 1, "rank 1 has sent");
          parx::barrier(group);
        }
        parx::barrier(world);
      };
      round();
      if (world.rank() == 0) before = open_descriptors();
      parx::barrier(world);
      for (int i = 0; i < 20; ++i) round();
      if (world.rank() == 0) after = open_descriptors();
      parx::barrier(world);
    });
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
    // Three ranks that have slept for the first time, and a connection or two on their way: not
    // twenty.
    BOOST_TEST(after <= before + 5, jobs::name_of(kind)
                                        << ": " << before << " descriptors, then " << after);
  }
}

BOOST_AUTO_TEST_CASE(a_listener_hands_no_pacing_on_and_remembers_what_other_hosts_are_due) {
  const auto fresh = parx::detail::stream_socket(AF_INET);
  const std::string usual = parx::detail::congestion_control_of(fresh.get());
  BOOST_TEST(!usual.empty());
  const parx::detail::arrivals incoming("127.0.0.1", "");
  BOOST_TEST(incoming.network_control() == usual);
  const std::string inherited = parx::detail::congestion_control_of(incoming.listeners().first);
  BOOST_TEST((inherited == usual || usual.starts_with("bbr")));
  BOOST_TEST(!inherited.starts_with("bbr"));
}

BOOST_AUTO_TEST_CASE(a_rank_sleeps_although_it_awaits_more_links_than_it_may_have_descriptors) {
  static constexpr int world = 300;
  const auto store = std::make_shared<parx::hash_store>();
  const auto shared = std::make_shared<parx::detail::endpoint>(parx::detail::endpoint_options{
      .job_store = store, .store_host = "127.0.0.1", .rank = 0, .world_size = world,
      .local_world_size = world, .may_spin = false, .env = {}});
  for (int rank = 1; rank < world; ++rank) {
    store->set(parx::detail::endpoint::record_key(rank), shared->own().to_text());
  }
  parx::hybrid_transport network(shared);
  std::vector<parx::link_interest> interests;
  for (int peer = 1; peer < world; ++peer) {
    interests.push_back({&network.link_to(peer, parx::channel::message), true, false});
  }

  rlimit usual{};
  ::getrlimit(RLIMIT_NOFILE, &usual);
  const rlimit tight{128, usual.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &tight);
  const auto started = clock_type::now();
  for (int i = 0; i < 20; ++i) network.wait(interests, 50ms);
  const auto slept = clock_type::now() - started;
  network.wake();
  const auto woken = clock_type::now();
  network.wait({}, 10s);
  const auto until_awake = clock_type::now() - woken;
  ::setrlimit(RLIMIT_NOFILE, &usual);

  BOOST_TEST((slept >= 20ms), "poll was refused");
  BOOST_TEST((until_awake < 5s));
}
