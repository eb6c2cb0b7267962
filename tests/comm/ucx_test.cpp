// Collectives and messages over UCX between emulated hosts, by its TCP and by its shared memory.
#include <parx/transport/ucx.hpp>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <parx/comm.hpp>

#include "comm/jobs.hpp"
#include "comm/matrix_runs.hpp"

namespace {

using jobs::check;
using jobs::expect_success;

/// UCX reports a lost peer in shared memory only if it is asked to.
struct reports_errors {
  reports_errors() { ::setenv("UCX_MM_ERROR_HANDLING", "y", 1); }
} asked_for_it;

constexpr jobs::kind kinds[] = {jobs::kind::ucx_tcp, jobs::kind::ucx_memory};

}  // namespace

BOOST_AUTO_TEST_CASE(every_algorithm_is_exact_over_ucx) {
  for (const auto kind : kinds) {
    for (const int world : {2, 3, 5}) matrix::run_awkward_counts(kind, world);
  }
}

BOOST_AUTO_TEST_CASE(megabytes_in_place_never_stand_still_over_ucx) {
  for (const auto kind : kinds) matrix::run_megabytes(kind, 3);
}

BOOST_AUTO_TEST_CASE(messages_of_all_sizes_and_collectives_do_not_disturb_each_other) {
  expect_success(kinds, 3, [](parx::process_group& world) {
    const int to = (world.rank() + 1) % 3, from = (world.rank() + 2) % 3;
    auto pair = world.subgroup(std::vector<int>{0, 1, 2});
    for (const std::size_t count : {0u, 1u, 3'000u, 400'000u}) {
      std::vector<int> sent(count, world.rank()), received(count, -1), sum(1000, 1);
      auto sending = parx::async_send(world, sent, to);
      auto sending_too = parx::async_send(pair, sent, to, {.tag = 2});
      parx::all_reduce(pair, sum);
      check(sum.front() == 3 && sum.back() == 3, "the sum beside the messages");
      parx::recv(pair, received, from, {.tag = 2});
      check(count == 0 || (received.front() == from && received.back() == from), "a group's");
      parx::recv(world, received, from);
      check(count == 0 || received.back() == from, "the world's");
      sending.wait();
      sending_too.wait();
    }
  });
}

BOOST_AUTO_TEST_CASE(calls_of_groups_on_other_threads_go_on_while_one_waits) {
  expect_success(kinds, 2, [](parx::process_group& world) {
    auto other = world.subgroup(std::vector<int>{0, 1});
    std::vector<float> late(100'000, 1.0F), now(100'000, 1.0F);
    auto first = parx::async_all_reduce(other, late);
    for (int i = 0; i < 20; ++i) parx::all_reduce(world, now);
    first.wait();
    check(late.back() == 2.0F && now.back() == 1'048'576.0F, "sums");
  });
}

BOOST_AUTO_TEST_CASE(ranks_in_different_calls_are_told_so_over_ucx) {
  for (const auto kind : kinds) {
    const auto failures = jobs::run_collecting(kind, 2, [](parx::process_group& world) {
      std::vector<int> x(world.rank() == 0 ? 10 : 11);
      parx::all_reduce(world, x);
    });
    for (const auto& each : failures) {
      BOOST_TEST(each.find("10") != std::string::npos, jobs::name_of(kind) << ": " << each);
      BOOST_TEST(each.find("11") != std::string::npos, jobs::name_of(kind) << ": " << each);
    }
  }
}
