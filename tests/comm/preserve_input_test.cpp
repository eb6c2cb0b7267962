// preserve_input: an all_reduce in place that fails in the middle leaves its input as it was.
#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <parx/comm/shared_buffer.hpp>

#include "comm/jobs.hpp"

namespace {

using parx::algorithm;

constexpr int world = 4;

/// Fills `values`, sums them with rank 0's abort() after `when` or in a later call, and says what
/// is wrong with them.
template <typename Sum>
std::string sum_until_aborted(parx::process_group& group, std::span<double> values,
                              std::chrono::microseconds when, Sum&& sum) {
  const auto all_are = [&](double v) {
    return std::all_of(values.begin(), values.end(), [v](double x) { return x == v; });
  };
  parx::barrier(group);
  std::thread saboteur;
  if (group.rank() == 0) {
    saboteur = std::thread([&] {
      std::this_thread::sleep_for(when);
      group.abort("the test wants it");
    });
  }
  std::string wrong;
  for (int round = 0; wrong.empty(); ++round) {
    const double mine = (1 << group.rank()) + 16.0 * round;
    std::fill(values.begin(), values.end(), mine);
    try {
      sum(values);
    } catch (const parx::error&) {
      if (!all_are(mine)) wrong = "the input is lost";
      break;
    }
    if (!all_are(15 + 16.0 * world * round)) wrong = "wrong sum";
  }
  if (saboteur.joinable()) saboteur.join();
  return wrong;
}

void expect_nothing_wrong(const std::vector<std::string>& found, const std::string& where) {
  for (const auto& each : found) BOOST_TEST(each == "", where << ": " << each);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_failed_all_reduce_leaves_its_input_by_every_algorithm_and_transport) {
  int delay = 0;
  for (const auto kind : jobs::common_kinds) {
    for (const auto use : {algorithm::automatic, algorithm::ring, algorithm::doubling,
                           algorithm::direct, algorithm::tree, algorithm::chain,
                           algorithm::halving}) {
      for (const bool async : {false, true}) {
        std::vector<std::string> found(world);
        const auto when = std::chrono::microseconds(1000 + delay++ * 137 % 4000);
        jobs::run_collecting(kind, world, [&](parx::process_group& group) {
          std::vector<double> values(200'000);
          found[static_cast<std::size_t>(group.rank())] =
              sum_until_aborted(group, values, when, [&](std::span<double> x) {
                const parx::reduce_options options{.preserve_input = true, .use = use};
                if (async) parx::async_all_reduce(group, x, options).wait();
                else parx::all_reduce(group, x, options);
              });
        });
        expect_nothing_wrong(found, jobs::name_of(kind) + " by " + std::string(name_of(use)));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_failed_all_reduce_in_shared_buffers_leaves_its_input) {
  for (int delay = 500; delay < 5000; delay += 500) {
    std::vector<std::string> found(world);
    jobs::run_collecting(jobs::kind::shm, world, [&](parx::process_group& group) {
      auto values = parx::allocate_shared<double>(group, 200'000);
      found[static_cast<std::size_t>(group.rank())] = sum_until_aborted(
          group, std::span(values.data(), values.size()), std::chrono::microseconds(delay),
          [&](std::span<double> x) { parx::all_reduce(group, x, {.preserve_input = true}); });
    });
    expect_nothing_wrong(found, "shared buffers");
  }
}

BOOST_AUTO_TEST_CASE(preserve_input_is_refused_where_the_result_lies_in_the_input) {
  const auto failures =
      jobs::run_collecting(jobs::kind::inproc, 2, [](parx::process_group& group) {
        std::vector<double> x(4, 1.0);
        std::array<double, 2> apart{};
        parx::reduce_scatter(group, x, apart, {.preserve_input = true});
        const auto own = std::span(x).subspan(2 * static_cast<std::size_t>(group.rank()), 2);
        parx::reduce_scatter(group, x, own, {.preserve_input = true});
      });
  for (const auto& each : failures) {
    BOOST_TEST(each.find("preserve_input in place is for all_reduce") != std::string::npos, each);
  }
}
