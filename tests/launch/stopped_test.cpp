// A rank that is stopped while it keeps the job's store: what the others lose by it.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/comm.hpp>

#include "launch/processes.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using parx_test::mentions;

/// Ends of the ranks of a job with a deadline of 1 s, in which rank 0 stops itself. Their seconds
/// count from then.
std::vector<processes::outcome> when_rank_0_stops(int world_size, std::string transport,
                                                  const std::function<void(parx::world&)>& body) {
  processes::job all;
  for (int rank = 0; rank < world_size; ++rank) {
    all.start(rank, world_size, body,
              {{"PARX_TRANSPORT", transport}, {"PARX_TIMEOUT", "1"}});
  }
  int status = 0;
  ::waitpid(all.pid(0), &status, WUNTRACED);
  return all.wait(4s);  // which then kills rank 0
}

void stop_rank_0(parx::world& world) {
  if (world.rank() == 0) ::raise(SIGSTOP);
  std::this_thread::sleep_for(100ms);  // until rank 0 is stopped
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_link_opens_although_the_rank_that_keeps_the_store_is_stopped) {
  const auto results = when_rank_0_stops(8, "tcp", [](parx::world& world) {
    parx::barrier(world);  // ranks 1 and 4 have no link yet
    stop_rank_0(world);
    std::vector<int> x(1);
    if (world.rank() == 1) {
      parx::recv(world, x, 4);
      std::this_thread::sleep_for(1500ms);
      parx::send(world, x, 4);
    }
    if (world.rank() == 4) {
      parx::send(world, x, 1);
      parx::recv(world, x, 1, {.timeout = 5s});
    }
    parx::log(parx::log_level::warn, "done");
  });
  for (const std::size_t rank : {1u, 4u}) {
    BOOST_TEST(mentions(results[rank].text, "done"), results[rank].text);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_stops_before_its_links_are_open_costs_the_others_their_deadline) {
  for (const std::string transport : {"auto", "tcp"}) {
    const auto results = when_rank_0_stops(4, transport, [](parx::world& world) {
      stop_rank_0(world);
      std::vector<float> x(4'000'000);
      parx::all_reduce(world, x);
    });
    for (const std::size_t rank : {1u, 2u, 3u}) {
      const auto& each = results[rank];
      BOOST_TEST_CONTEXT(transport << ", rank " << rank << ": " << each.text) {
        BOOST_TEST(each.exit_code == 1);
        BOOST_TEST(mentions(each.text, "rank 0"));
        BOOST_TEST(!mentions(each.text, "after 0.0 s"));
        BOOST_TEST(each.seconds < 2.5);
      }
    }
  }
}
