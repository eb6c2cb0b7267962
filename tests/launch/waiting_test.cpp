// How processes wait for each other: asleep, and for nothing but each other.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <parx/comm.hpp>

#include "launch/processes.hpp"

namespace {

using namespace std::chrono_literals;
using processes::clock_type;
using processes::job;

constexpr const char* transports[] = {"tcp", "auto"};

/// All that this process's threads have computed so far. Seconds.
double processor_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// The time that all but a quarter of the calls stay below. Milliseconds.
double upper_quartile(int calls, const std::function<void()>& before,
                      const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    before();
    const auto start = clock_type::now();
    call();
    times.push_back(std::chrono::duration<double, std::milli>(clock_type::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() * 3 / 4];
}

void run_on_all(int world, const std::string& transport,
                const std::function<void(parx::world&)>& body) {
  job all;
  for (int rank = 0; rank < world; ++rank) {
    all.start(rank, world, body, {{"PARX_TRANSPORT", transport}});
  }
  for (const auto& each : all.wait(60s)) BOOST_TEST(each.exit_code == 0, transport << each.text);
}

/// The same, all on one core.
void run_on_one_core(int world, const std::string& transport,
                     const std::function<void(parx::world&)>& body) {
  job all;
  for (int rank = 0; rank < world; ++rank) {
    all.start_program(rank, world, [&](parx::init_options options) {
      cpu_set_t cores;
      ::sched_getaffinity(0, sizeof cores, &cores);
      std::size_t first = 0;
      while (!CPU_ISSET(first, &cores)) ++first;
      CPU_ZERO(&cores);
      CPU_SET(first, &cores);
      ::sched_setaffinity(0, sizeof cores, &cores);
      return parx::run(body, std::move(options));
    }, {{"PARX_TRANSPORT", transport}});
  }
  for (const auto& each : all.wait(60s)) BOOST_TEST(each.exit_code == 0, transport << each.text);
}

}  // namespace

// A kernel that has seen small messages on a connection delays acknowledgements by 40 ms, which
// Gloo and who sets no TCP_NODELAY pay in every step of a ring.
BOOST_AUTO_TEST_CASE(long_calls_after_short_ones_never_wait_for_a_delayed_acknowledgement) {
  for (const int world : {2, 3, 4}) {
    run_on_all(world, "tcp", [](parx::world& group) {
      using parx::algorithm;
      std::vector<float> word(1);
      for (const auto use : {algorithm::ring, algorithm::halving}) {
        for (const std::size_t count :
             {std::size_t{4096}, std::size_t{65'536}, std::size_t{262'144}}) {
          std::vector<float> x(count);
          const double took = upper_quartile(
              20,
              [&] {
                for (int i = 0; i < 20; ++i) {
                  parx::all_reduce(group, word, {.use = algorithm::doubling});
                }
              },
              [&] { parx::all_reduce(group, x, {.use = use}); });
          parx::require(took < 30, "{} of {} took {} ms", name_of(use), count, took);
        }
      }
    });
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_waits_long_sleeps) {
  const auto wait_for_rank_0 = [](parx::world& group) {
    const auto late = [&](const char* what, const std::function<void()>& call) {
      parx::barrier(group);
      if (group.rank() == 0) std::this_thread::sleep_for(600ms);
      const double before = processor_time();
      call();
      const double used = processor_time() - before;
      parx::require(group.rank() == 0 || used < 0.1, "{} computed for {} s of 0.6", what, used);
    };
    std::vector<float> x(1000), large(1'000'000);
    late("barrier", [&] { parx::barrier(group); });
    late("all_reduce", [&] { parx::all_reduce(group, x); });
    late("large all_reduce", [&] { parx::all_reduce(group, large); });
    late("broadcast", [&] { parx::broadcast(group, x); });
    late("async_all_reduce", [&] { parx::async_all_reduce(group, x).wait(); });
    late("recv", [&] {
      if (group.rank() == 0) parx::send(group, x, 1);
      if (group.rank() == 1) parx::recv(group, x, 0);
    });
  };
  for (const char* transport : transports) {
    run_on_all(2, transport, wait_for_rank_0);
    run_on_one_core(3, transport, wait_for_rank_0);
  }
}

// Who spins while the rank it waits for wants the same core costs it a time slice at every step: 8
// to 20 ms a call.
BOOST_AUTO_TEST_CASE(ranks_that_share_a_core_hand_it_on) {
  for (const char* transport : transports) {
    run_on_one_core(4, transport, [](parx::world& group) {
      std::vector<float> x(256);
      double fastest = 1e9;
      for (int round = 0; round < 5; ++round) {  // the core may be shared with somebody else, too
        fastest = std::min(fastest, upper_quartile(
                                        50, [] {}, [&] { parx::all_reduce(group, x); }));
      }
      parx::require(fastest < 3, "1 KiB took {} ms", fastest);
    });
  }
}
