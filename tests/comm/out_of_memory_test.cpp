// A group whose thread runs out of memory ends with an error.
#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "comm/jobs.hpp"

namespace {

using namespace std::chrono_literals;

std::atomic<bool> memory_is_short{false};
thread_local bool has_its_own = false;  ///< not short for this thread

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (memory_is_short && !has_its_own) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

BOOST_AUTO_TEST_CASE(a_groups_thread_without_memory_ends_the_group_and_not_the_process) {
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
