// A group whose thread runs out of memory ends with an error.
#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "comm/jobs.hpp"
#include "short_memory.hpp"

namespace {

using namespace std::chrono_literals;

using parx_test::has_its_own;
using parx_test::memory_is_short;

}  // namespace

BOOST_AUTO_TEST_CASE(a_groups_thread_without_memory_ends_the_group_and_not_the_process) {
  if (!parx_test::memory_can_be_short) {
    fmt::print("SKIPPED: clang's sanitizers do not let memory run out\n");
    return;
  }
  has_its_own = true;
  for (const auto kind : {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::shm}) {
    std::array<bool, 2> failed{};
    const auto said = jobs::run_collecting(kind, 2, [&](parx::process_group& group) {
      has_its_own = true;
      std::vector<float> x(1000);
      parx::async_all_reduce(group, x).wait();
      if (group.rank() == 1) {
        // Its end of the call would come too late for the other's deadline.
        while (!group.closed() && !memory_is_short) std::this_thread::sleep_for(1ms);
        std::this_thread::sleep_for(700ms);
      } else {
        auto pending = parx::async_all_reduce(group, x, {.timeout = 300ms});
        memory_is_short = true;
        try {
          pending.wait();
        } catch (const std::exception&) {
          failed[0] = group.closed();
        }
        memory_is_short = false;
      }
      try {
        // The first may get what the other has sent before its end.
        for (int i = 0; i < 2; ++i) parx::all_reduce(group, x, {.timeout = 5s});
      } catch (const std::exception&) {
        if (group.rank() == 1) failed[1] = true;
      }
    });
    memory_is_short = false;
    BOOST_TEST(failed[0], jobs::name_of(kind) << ": " << said[0]);
    BOOST_TEST(failed[1], jobs::name_of(kind) << ": " << said[1]);
  }
}
