// Processes that are forked from ranks: they may not communicate, and disturb nobody.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/comm.hpp>
#include <parx/core/blocked_threads.hpp>
#include <parx/store.hpp>

#include "launch/processes.hpp"
#include "messages.hpp"
#include "sanitizers.hpp"

namespace {

using namespace std::chrono_literals;
using processes::job;
using parx_test::mentions;

/// The exit code of a forked process; -1 for one that is killed because it has not ended in 5 s.
int exit_code_of(pid_t child) {
  int status = -1;
  for (int i = 0; i < 500; ++i) {
    if (::waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    std::this_thread::sleep_for(10ms);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return -1;
}

/// Runs `body` in a forked process; what it returns is the exit code.
int in_forked_process(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  return exit_code_of(child);
}

/// Whether `use` throws a usage_error that names the fork.
bool is_refused(const std::function<void()>& use) {
  try {
    use();
  } catch (const parx::usage_error& refused) {
    return mentions(refused.what(), "forked from");
  }
  return false;
}

}  // namespace

// The first test, since what is made at its first use would be made already in a later one.
BOOST_AUTO_TEST_CASE(a_process_may_be_forked_while_its_store_starts) {
  int ended_well = 0;
  for (int i = 0; i < 100; ++i) {
    const int code = in_forked_process([i] {
      const parx::tcp_store_server server({.address = "127.0.0.1"});
      std::this_thread::sleep_for(std::chrono::microseconds(i));
      const pid_t child = ::fork();
      if (child == 0) {
        { const parx::detail::blocked_threads::mark here; }
        ::_exit(0);
      }
      return exit_code_of(child);
    });
    if (code != 0) break;
    ++ended_well;
  }
  BOOST_TEST(ended_well == 100);
}

BOOST_AUTO_TEST_CASE(a_process_forked_from_a_rank_may_drop_its_copy_of_the_job) {
  for (const std::string transport : {"tcp", "auto"}) {
    job all;
    for (int rank = 0; rank < 2; ++rank) {
      all.start_program(
          rank, 2,
          [](parx::init_options options) {
            pid_t child = -1;
            {
              auto world = parx::init(std::move(options));
              std::vector<float> x(100'000, 1.0F);
              parx::async_all_reduce(world, x).wait();  // there is a thread that the copy has not
              auto half = parx::split(world, 0);
              parx::all_reduce(*half, x);
              child = ::fork();
              if (child > 0) {
                if (exit_code_of(child) != 0) return 3;
                for (int i = 0; i < 3; ++i) {
                  parx::all_reduce(world, x);
                  parx::all_reduce(*half, x);
                }
                if (x[7] != 256.0F) return 4;
                parx::barrier(world);
              }
            }
            if (child == 0) ::_exit(0);
            return 0;
          },
          {{"PARX_TRANSPORT", transport}});
    }
    for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, transport << each.text);
  }
}

BOOST_AUTO_TEST_CASE(whatever_a_forked_process_uses_of_a_rank_is_refused_at_once) {
  for (const std::string transport : {"tcp", "auto"}) {
    job all;
    for (int rank = 0; rank < 2; ++rank) {
      all.start(rank, 2, [](parx::world& world) {
        std::vector<float> x(1000, 1.0F);
        auto half = parx::split(world, 0);
        parx::all_reduce(*half, x);
        auto under_way = parx::async_all_reduce(world, x);
        const auto store = world.job_store();
        std::vector<std::function<void()>> uses{
            [&] { parx::all_reduce(world, x); },
            [&] { parx::all_reduce(*half, x); },
            [&] { static_cast<void>(parx::async_all_reduce(world, x)); },
            [&] { parx::send(world, x, 1 - world.rank()); },
            [&] { static_cast<void>(parx::all_gather_object(world, std::string("words"))); },
            [&] { static_cast<void>(parx::allocate_shared<float>(world, 100)); },
            [&] { static_cast<void>(parx::split(world, 0)); },
            [&] {
              static_cast<void>(world.subgroup(std::vector<int>{0, 1}));
            },
            [&] { under_way.wait(); },
            [&] { static_cast<void>(under_way.test()); },
            [&] { store->set("key", "value"); },
            [&] { static_cast<void>(store->get("key")); },
            [&] { static_cast<void>(store->watch("key")); }};
        const int code = in_forked_process([&] {
          for (std::size_t i = 0; i < uses.size(); ++i) {
            if (!is_refused(uses[i])) return 10 + static_cast<int>(i);
          }
          world.abort("a forked process has no say in this");
          under_way = {};  // its destructor does not wait
          return 0;
        });
        parx::require(code == 0, "the forked process said {}", code);
        under_way.wait();
        parx::all_reduce(world, x);
        parx::all_reduce(*half, x);
        parx::require(x[7] == 16.0F, "wrong sum");
      }, {{"PARX_TRANSPORT", transport}});
    }
    for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, transport << each.text);
  }
}

BOOST_AUTO_TEST_CASE(a_forked_process_that_fails_inside_run_leaves_the_job_alone) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start_program(rank, 2, [](parx::init_options options) {
      pid_t child = -1;
      const int code = parx::run(
          [&](parx::world& world) {
            std::vector<float> x(1000, 1.0F);
            parx::all_reduce(world, x);
            child = ::fork();
            if (child > 0) {
              const int ended = exit_code_of(child);
              parx::require(ended == 2, "the forked process ended with {}", ended);
            }
            parx::all_reduce(world, x);  // refused in the forked one
          },
          std::move(options));
      // Its copies of the job are not freed, which a leak checker would mind.
      if (child == 0 && parx_test::address_sanitizer) ::_exit(code);
      if (child == 0) std::exit(code);
      return code;
    });
  }
  for (const auto& each : all.wait()) {
    BOOST_TEST(each.exit_code == 0, each.text);
    BOOST_TEST(mentions(each.text, "forked from"), each.text);
  }
}

BOOST_AUTO_TEST_CASE(a_forked_process_that_outlives_its_rank_keeps_nobody_waiting) {
  int kept_open[2] = {-1, -1};
  BOOST_REQUIRE(::pipe(kept_open) == 0);
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2, [&](parx::world& world) {
      std::vector<float> x(1000, 1.0F);
      parx::all_reduce(world, x);
      ::close(kept_open[1]);
      if (world.rank() == 1 && ::fork() == 0) {
        char byte = 0;
        ::_exit(::read(kept_open[0], &byte, 1) == 0 ? 0 : 1);  // once the test has seen both end
      }
      parx::barrier(world);
    });
  }
  for (const auto& each : all.wait(8s)) BOOST_TEST(each.exit_code == 0, each.text);
  ::close(kept_open[0]);
  ::close(kept_open[1]);
}

BOOST_AUTO_TEST_CASE(a_forked_copy_of_a_stores_server_does_not_end_the_original) {
  auto server = std::make_unique<parx::tcp_store_server>();
  parx::tcp_store client({.port = server->port()});
  BOOST_TEST(in_forked_process([&] {
               if (!is_refused([&] { client.set("key", "other"); })) return 1;
               server.reset();
               return 0;
             }) == 0);
  client.set("key", "value");
  BOOST_TEST(client.get("key") == "value");
}

BOOST_AUTO_TEST_CASE(a_process_may_be_forked_while_another_of_its_threads_begins_to_wait) {
  std::atomic<bool> enough{false};
  std::thread waits([&] {
    while (!enough) const parx::detail::blocked_threads::mark here;
  });
  int ended_well = 0;
  for (int i = 0; i < 50; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      { const parx::detail::blocked_threads::mark here; }
      ::_exit(0);
    }
    if (exit_code_of(child) != 0) break;
    ++ended_well;
  }
  enough = true;
  waits.join();
  BOOST_TEST(ended_well == 50);
}
