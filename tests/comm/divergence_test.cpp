// Random programs in which one rank uses a different root or skips a call: every rank reports it
// long before the deadline, over every transport.
#include <parx/comm.hpp>
#include <parx/core/log.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "comm/jobs.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;


/// One call of a program.
struct planned_call {
  int operation = 0;
  int root = 0;
  std::size_t count = 1;
};

void make(parx::process_group& group, const planned_call& of) {
  const auto world = static_cast<std::size_t>(group.size());
  std::vector<float> x(of.count), all(of.count * world);
  switch (of.operation) {
    case 0: return parx::broadcast(group, x, {.root = of.root});
    case 1: return parx::reduce(group, x, {.root = of.root});
    case 2: return parx::gather(group, x, all, {.root = of.root});
    case 3: return parx::scatter(group, all, x, {.root = of.root});
    case 4: return parx::all_reduce(group, x);
    case 5: return parx::all_gather(group, x, all);
    default: return parx::barrier(group);
  }
}

struct trial {
  jobs::kind kind;
  int world, odd;
  std::vector<planned_call> usual, other;
  std::string what;
};

trial random_trial(std::mt19937& random, jobs::kind kind, bool skips) {
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  trial made{.kind = kind, .world = 2 + below(3), .odd = 0, .usual = {}, .other = {}, .what = {}};
  made.odd = below(made.world);
  for (int i = 0; i < 6; ++i) {
    made.usual.push_back(
        {below(7), below(made.world), std::array{1UL, 100UL, 20000UL}[random() % 3]});
  }
  const int at = below(5);
  made.other = made.usual;
  const auto place = made.other.begin() + at;
  if (skips) {
    made.other.erase(place);
  } else {
    *place = {below(4), (place->root + 1 + below(made.world - 1)) % made.world, place->count};
    made.usual[static_cast<std::size_t>(at)].operation = place->operation;
  }
  made.what = fmt::format("{} of {}: rank {} {} #{}", jobs::name_of(kind), made.world, made.odd,
                          skips ? "leaves out" : "has another root in", at + 1);
  for (const planned_call& each : made.usual) {
    made.what += fmt::format(" ({} {} {})", each.operation, each.root, each.count);
  }
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(another_root_or_a_call_left_out_is_told_long_before_the_deadline) {
  std::mt19937 random(7);
  for (int round = 0; round < 8; ++round) {
    for (const auto kind : jobs::common_kinds) {
      for (const bool skips : {false, true}) {
        const trial each = random_trial(random, kind, skips);
        const auto started = clock_type::now();
        const auto failures = jobs::run_collecting(kind, each.world, [&](auto& group) {
          for (const auto& call : group.rank() == each.odd ? each.other : each.usual) {
            make(group, call);
          }
          parx::barrier(group);
        }, {.timeout = 4s});
        BOOST_TEST((clock_type::now() - started < 3s), each.what << ": " << failures[0]);
        for (const std::string& text : failures) {
          BOOST_TEST(parx_test::mentions(text, "the ranks called different operations"),
                     each.what << ": " << text);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(where_ranks_have_parted_is_told_by_the_number_of_the_call) {
  for (const auto kind : jobs::common_kinds) {
    const auto failures = jobs::run_collecting(kind, 2, [](parx::process_group& group) {
      std::vector<float> x(3);
      parx::barrier(group);
      // Each takes itself for the root, and goes on.
      parx::broadcast(group, x, {.root = group.rank()});
      parx::all_reduce(group, x);
    });
    for (const std::string& text : failures) {
      BOOST_TEST(parx_test::mentions(text, "call #2 was broadcast of 3 float32 with root"), text);
    }
  }
}

BOOST_AUTO_TEST_CASE(two_roots_of_a_groups_last_call_are_told_when_it_ends) {
  for (const auto kind : jobs::common_kinds) {
    std::vector<std::string> said;
    std::mutex mutex;
    parx::logger::instance().set_sink([&](parx::log_level, std::string_view line) {
      const std::lock_guard lock(mutex);
      said.emplace_back(line);
    });
    std::barrier both(2);
    const auto failures = jobs::run_collecting(kind, 2, [&](parx::process_group& group) {
      parx::process_group part = group.subgroup(std::array{0, 1});
      std::vector<float> x(3);
      parx::barrier(part);
      both.arrive_and_wait();
      parx::broadcast(part, x, {.root = group.rank()});
      both.arrive_and_wait();
    });
    parx::logger::instance().set_sink({});
    BOOST_TEST_REQUIRE(!said.empty(), jobs::name_of(kind));
    BOOST_TEST(parx_test::mentions(said.front(), "sent for its call #2, broadcast of 3 float32"),
               said.front());
  }
}
