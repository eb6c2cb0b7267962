// Several groups of the same ranks: waits across groups, and which thread makes progress on which.
#include <parx/comm/collectives/split.hpp>

#include <boost/test/unit_test.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <parx/comm.hpp>
#include <parx/trace.hpp>

#include "comm/jobs.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using parx::process_group;
using parx_test::mentions;

const parx::group_options impatient{.timeout = 500ms, .look_after = 30ms};
const parx::group_options patient{.timeout = 10s};

std::vector<int> everyone(const process_group& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}
void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}
/// More than links buffer, so that both ends must make progress.
std::vector<int> megabytes(const process_group& group) {
  return std::vector<int>(600'000, group.rank() + 1);
}
bool is_sum(const std::vector<int>& of, int world) {
  const int sum = world * (world + 1) / 2;
  return std::all_of(of.begin(), of.end(), [sum](int each) { return each == sum; });
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_wait_for_their_groups_in_any_order) {
  for (const auto kind : jobs::common_kinds) {
    const auto failure = jobs::run(
        kind, 3,
        [](process_group& world) {
          process_group groups[] = {world.subgroup(everyone(world)),
                                    world.subgroup(everyone(world)),
                                    world.subgroup(everyone(world))};
          std::vector<std::vector<int>> data(3, megabytes(world));
          std::vector<parx::work> works;
          for (int i = 0; i < 3; ++i)
            works.push_back(parx::async_all_reduce(groups[i], data[static_cast<std::size_t>(i)]));
          for (int i = 0; i < 3; ++i)
            works[static_cast<std::size_t>((world.rank() + i) % 3)].wait();
          for (const auto& each : data) expect(is_sum(each, 3), "a wrong sum");
        },
        patient);
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
  }
}

BOOST_AUTO_TEST_CASE(a_blocking_call_and_a_test_let_the_other_groups_go_on) {
  for (const auto kind : jobs::common_kinds) {
    const auto failure = jobs::run(
        kind, 3,
        [](process_group& world) {
          auto one = world.subgroup(everyone(world)), two = world.subgroup(everyone(world));
          auto in_one = megabytes(world), in_two = megabytes(world);
          auto pending = parx::async_all_reduce(one, in_one);
          if (world.rank() == 0) {
            parx::all_reduce(two, in_two);  // the others come to it when `one` is done
            pending.wait();
          } else if (world.rank() == 1) {
            pending.wait();
            parx::all_reduce(two, in_two);
          } else {
            auto after = parx::async_all_reduce(two, in_two);
            while (!after.test()) {
            }
            while (!pending.test()) {
            }
          }
          expect(is_sum(in_one, 3) && is_sum(in_two, 3), "a wrong sum");
        },
        patient);
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
  }
}

BOOST_AUTO_TEST_CASE(a_group_goes_to_another_thread_while_its_old_one_waits_elsewhere) {
  for (const auto kind : jobs::common_kinds) {
    const auto failure = jobs::run(
        kind, 2,
        [](process_group& world) {
          auto here = world.subgroup(everyone(world)), there = world.subgroup(everyone(world));
          auto in_here = megabytes(world), in_there = megabytes(world);
          auto pending = parx::async_all_reduce(there, in_there);
          std::string thrown;
          std::thread other([&] {
            try {
              pending.wait();
              for (int i = 0; i < 50; ++i) {
                std::vector<int> x(3, 1);
                parx::async_all_reduce(there, x).wait();
                expect(x[2] == 2, "a wrong sum");
              }
            } catch (const std::exception& failed) {
              thrown = failed.what();
            }
          });
          if (world.rank() == 0) std::this_thread::sleep_for(20ms);
          parx::async_all_reduce(here, in_here).wait();
          other.join();
          expect(thrown.empty(), thrown);
          expect(is_sum(in_here, 2) && is_sum(in_there, 2), "a wrong sum");
        },
        patient);
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
  }
}

BOOST_AUTO_TEST_CASE(two_ranks_that_wait_in_two_groups_are_told_both_calls) {
  for (const auto kind : jobs::common_kinds) {
    const auto failures = jobs::run_collecting(
        kind, 2,
        [](process_group& world) {
          auto data = world.subgroup(everyone(world), {.name = "dp at pp=1"});
          auto tensor = *parx::split(world, 0, {.name = "tp"});
          std::vector<float> x(4);
          parx::all_reduce(world.rank() == 0 ? data : tensor, x);
        },
        impatient);
    BOOST_TEST(mentions(failures[0], "all_reduce #1 on group \"dp at pp=1\" (rank 0 of 2"),
               failures[0]);
    BOOST_TEST(mentions(failures[1], "all_reduce #1 on group \"tp\" (rank 1 of 2"), failures[1]);
    // One of them gives up first, and tells the other.
    for (const auto& each : failures) {
      BOOST_TEST(mentions(each, "which has not entered the operation: it waits in #1, all_reduce "
                                "of 4 float32 (sum)"), each);
      BOOST_TEST((mentions(each, " at groups_test.cpp:", " on group \"tp\", for rank 0") ||
                  mentions(each, " at groups_test.cpp:", " on group \"dp at pp=1\", for rank 1")),
                 each);
      BOOST_TEST(mentions(each, "in a circle: rank ", " rank 0 in #1, ", " rank 1 in #1, "), each);
    }
  }
}

BOOST_AUTO_TEST_CASE(behind_a_chain_through_groups_is_the_rank_that_computes) {
  for (const auto kind : {jobs::kind::inproc, jobs::kind::shm}) {
    const auto failures = jobs::run_collecting(kind, 4, [](process_group& world) {
      std::vector<float> x(4);
      // Ranks 1 and 3 of the job are 0 and 1 of "back".
      if (world.rank() == 0 || world.rank() == 1) {
        auto front = world.subgroup(std::vector<int>{0, 1}, {.name = "front"});
        if (world.rank() == 0) parx::barrier(front);
      }
      if (world.rank() == 1 || world.rank() == 3) {
        auto back = world.subgroup(std::vector<int>{1, 3}, {.name = "back"});
        if (world.rank() == 1) parx::all_reduce(back, x, {.timeout = 5s});
        else std::this_thread::sleep_for(900ms);
      }
      if (world.rank() == 2) std::this_thread::sleep_for(900ms);
    }, impatient);
    const auto& text = failures[0];
    BOOST_TEST(mentions(text, "barrier #1 on group \"front\""), text);
    BOOST_TEST(mentions(text, "it waits in #1, all_reduce of 4 float32 (sum)"), text);
    BOOST_TEST(mentions(text, "on group \"back\", for rank 3"), text);
    BOOST_TEST(mentions(text, "; behind that is rank 3 of the job, which waits in no call"), text);
  }
}

BOOST_AUTO_TEST_CASE(asynchronous_calls_are_not_reported_as_the_call_a_rank_waits_in) {
  for (const auto kind : {jobs::kind::inproc, jobs::kind::shm}) {
    const auto failures = jobs::run_collecting(
        kind, 2,
        [](process_group& world) {
          auto one = world.subgroup(everyone(world), {.name = "one"});
          auto two = world.subgroup(everyone(world), {.name = "two"});
          std::vector<float> x(4), y(4);
          if (world.rank() == 0) return parx::all_reduce(one, x);
          auto pending = parx::async_all_reduce(two, y, {.timeout = 5s});
          std::this_thread::sleep_for(900ms);
        },
        impatient);
    BOOST_TEST(mentions(failures[0], "which has not entered the operation (computing"),
               failures[0]);
    BOOST_TEST(!mentions(failures[0], "circle"), failures[0]);
  }
}

BOOST_AUTO_TEST_CASE(an_error_knows_the_name_of_its_group_and_the_host_of_its_peer) {
  char here[256] = {};
  ::gethostname(here, sizeof here - 1);
  std::string group, host;
  int peer = -1;
  static_cast<void>(jobs::run_collecting(jobs::kind::shm, 2, [&](process_group& world) {
    auto stage = *parx::split(world, 0, {.key = -world.rank(), .name = "pp at dp=0"});
    if (world.rank() == 0) return std::this_thread::sleep_for(900ms);
    try {
      parx::barrier(stage);
    } catch (const parx::error& failed) {
      group = failed.context().group;
      host = failed.context().host;
      peer = failed.context().peer;
    }
  }, impatient));
  BOOST_TEST(group == "pp at dp=0");
  BOOST_TEST(host == here);
  BOOST_TEST(peer == 1);  // by the key
}

BOOST_AUTO_TEST_CASE(a_trace_names_the_group_of_a_call_unless_it_is_the_job_s) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("parx_groups_{}.json", ::getpid());
  parx::trace::start({.path = path.string()});
  const auto failure = jobs::run(jobs::kind::inproc, 2, [](process_group& world) {
    std::vector<int> x(3);
    auto group = world.subgroup(everyone(world), {.name = "dp at pp=1"});
    parx::all_reduce(group, x);
    parx::broadcast(world, x);
  });
  parx::trace::stop();
  parx::trace::flush();
  BOOST_TEST(failure == "", failure);
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  BOOST_TEST(mentions(text, "\"all_reduce on dp at pp=1\"", "\"broadcast\""), text);
  parx::trace::start({.path = path.string()});  // forgets what would be written when this exits
  parx::trace::stop();
  std::filesystem::remove(path);
}

BOOST_AUTO_TEST_CASE(names_do_not_decide_which_ranks_meet) {
  const auto failure = jobs::run(jobs::kind::inproc, 2, [](process_group& world) {
    const auto own = "mine, of rank " + std::to_string(world.rank());
    auto first = world.subgroup(everyone(world), {.name = own});
    auto second = world.subgroup(everyone(world), {.name = own});
    auto third = world.subgroup(everyone(world));
    expect(first.name() == own && third.name() == "world/[0,1]", first.name() + third.name());
    std::vector<int> x(1, 1), y(1, 2), z(1, 3);
    auto in_second = parx::async_all_reduce(second, y);
    parx::all_reduce(first, x);
    parx::all_reduce(third, z);
    in_second.wait();
    expect(x[0] == 2 && y[0] == 4 && z[0] == 6, "groups were mixed up");
  });
  BOOST_TEST(failure == "", failure);
}

BOOST_AUTO_TEST_CASE(bytes_of_messages_are_counted_like_those_of_collectives) {
  for (const auto kind : jobs::common_kinds) {
    std::vector<std::size_t> sent(2), received(2);
    const auto failure = jobs::run(kind, 2, [&](process_group& world) {
      auto group = world.subgroup(everyone(world));
      std::vector<float> x(100);
      for (int i = 0; i < 3; ++i) {
        if (world.rank() == 0) parx::send(group, x, 1);
        else parx::recv(group, x, 0);
      }
      const auto own = static_cast<std::size_t>(world.rank());
      sent[own] = group.bytes_sent();
      received[own] = group.bytes_received();
    });
    BOOST_TEST(failure == "", failure);
    BOOST_TEST(sent == (std::vector<std::size_t>{3 * (64 + 400), 0}),
               boost::test_tools::per_element());
    BOOST_TEST(received == (std::vector<std::size_t>{0, 3 * (64 + 400)}),
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_second_thread_in_a_call_of_the_same_group_gets_a_sentence) {
  for (const auto kind : jobs::common_kinds) {
    for (const bool asynchronous : {false, true}) {
      std::string refusal;
      const auto failure = jobs::run(kind, 2, [&](process_group& world) {
        std::vector<int> x(3, 1);
        if (asynchronous) parx::async_all_reduce(world, x).wait();  // now there is a lock
        parx::barrier(world);
        x.assign(3, 1);
        if (world.rank() == 1) {
          std::this_thread::sleep_for(300ms);
          parx::all_reduce(world, x);
        } else {
          std::thread second([&] {
            std::this_thread::sleep_for(100ms);
            std::vector<int> y(3, 5);
            try {
              if (asynchronous) parx::async_broadcast(world, y).wait();
              else parx::send(world, y, 1);
            } catch (const parx::usage_error& refused) {
              refusal = refused.what();
            }
          });
          parx::all_reduce(world, x);
          second.join();
        }
        parx::all_reduce(world, x);
        expect(x == std::vector<int>(3, 4), "the first thread's calls were disturbed");
      });
      BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
      BOOST_TEST(mentions(refusal, "on group \"world\" at groups_test.cpp:"), refusal);
      BOOST_TEST(mentions(refusal, "another thread is in a call of this group"), refusal);
    }
  }
}
