// A rank that is stopped while it keeps the job's store: what the others lose by it.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include <parx/comm.hpp>

#include "launch/processes.hpp"

BOOST_AUTO_TEST_CASE(where_a_peer_is_cannot_be_asked_for_longer_than_the_call_may_take) {
  using processes::contains;
  static constexpr int world_size = 8;
  processes::job all;
  for (int rank = 0; rank < world_size; ++rank) {
    all.start(rank, world_size, [](parx::world& world) {
      parx::barrier(world);  // ranks 1 and 4 have no link yet
      if (world.rank() == 0) ::raise(SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until rank 0 is stopped
      std::vector<int> x(1);
      if (world.rank() == 1) parx::recv(world, x, 4);
      if (world.rank() == 4) parx::recv(world, x, 1);
    }, {{"PARX_TRANSPORT", "tcp"}, {"PARX_TIMEOUT", "1"}});
  }
  const auto results = all.wait(std::chrono::seconds(12));  // which then kills rank 0
  for (const std::size_t rank : {1u, 4u}) {
    BOOST_TEST(results[rank].exit_code == 1, results[rank].text);
    BOOST_TEST(contains(results[rank].text, "has not told its address within "),
               results[rank].text);
    BOOST_TEST(results[rank].seconds < 10.0, results[rank].text);
  }
}
