// A network that knows nothing but transport/links.hpp and job.hpp carries all that groups do.
#include "transport/socketpair_links.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <parx/comm.hpp>
#include <parx/comm/abort_reason.hpp>
#include <parx/comm/schedule/catalog.hpp>

#include "comm/matrix.hpp"

namespace {

using namespace std::chrono_literals;

/// Runs body on every rank of a job and returns what each rank threw.
std::vector<std::string> run_job(int world, const std::function<void(parx::process_group&)>& body) {
  const auto network = std::make_shared<parx_test::socketpair_network>(world);
  std::vector<int> everyone(static_cast<std::size_t>(world));
  std::iota(everyone.begin(), everyone.end(), 0);
  std::vector<std::string> failures(everyone.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      parx::process_group group(
          std::make_unique<parx_test::socketpair_links>(network, everyone, rank));
      try {
        body(group);
      } catch (const std::exception& thrown) {
        failures[static_cast<std::size_t>(rank)] = thrown.what();
        if (!group.closed()) group.abort(parx::abort_reason(group));
      }
    });
  }
  for (std::thread& each : threads) each.join();
  return failures;
}

void expect_none(const std::vector<std::string>& failures) {
  for (const std::string& each : failures) BOOST_TEST(each == "", each);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_algorithm_that_needs_no_shared_memory_runs_over_it) {
  for (const int world : {2, 3, 5}) {
    std::vector<matrix::trial> trials;
    for (const parx::catalog_entry& entry : parx::catalog()) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{37}, std::size_t{100'003}}) {
        const auto whole = matrix::has_blocks(entry.what) ? count * static_cast<std::size_t>(world)
                                                          : count;
        const std::vector<int> one_host(static_cast<std::size_t>(world), 0);
        const parx::call_shape shape{.what = entry.what, .world = world, .count = whole,
                                     .root = world - 1, .host_of = one_host};
        if (!parx::can_do(entry, shape)) continue;
        trials.push_back({.what = entry.what, .use = entry.name, .count = count,
                          .root = parx::has_root(entry.what) ? world - 1 : 0,
                          .in_place = count % 2 == 1});
      }
    }
    BOOST_TEST(trials.size() > 50u);
    expect_none(run_job(world, [&](parx::process_group& group) {
      for (const matrix::trial& each : trials) matrix::run(group, each);
    }));
  }
}

BOOST_AUTO_TEST_CASE(messages_come_by_tag_and_from_any_rank_while_collectives_go_on) {
  expect_none(run_job(3, [](parx::process_group& group) {
    const int next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
    std::vector<int> sum(200'000, 1);
    auto reducing = parx::async_all_reduce(group, sum);
    const std::vector<int> large(100'000, group.rank());
    std::vector<int> got(large.size());
    auto sending = parx::async_send(group, large, next, {.tag = 7});
    parx::recv(group, got, before, {.tag = 7});
    sending.wait();
    reducing.wait();
    parx::require(got.front() == before && got.back() == before, "wrong message");
    parx::require(sum.front() == 3 && sum.back() == 3, "wrong sum");
    std::vector<int> one{group.rank()};
    if (group.rank() > 0) {
      parx::send(group, one, 0);
      return;
    }
    int ranks = 0;
    for (int i = 0; i < 2; ++i) {
      const int from = parx::recv_any(group, one);
      parx::require(one[0] == from, "wrong sender");
      ranks += from;
    }
    parx::require(ranks == 3, "a rank twice");
  }));
}

BOOST_AUTO_TEST_CASE(subgroups_side_by_side_and_shared_buffers_without_shared_memory) {
  expect_none(run_job(4, [](parx::process_group& group) {
    parx::require(!group.shares_memory() && group.hosts() == std::vector<int>(4, 0), "wrong hosts");
    auto pair = parx::split(group, group.rank() % 2);
    auto buffer = parx::allocate_shared<float>(*pair, 1000);
    parx::require(buffer.of(pair->rank()) == buffer.data(), "not this rank's part");
    parx::require(buffer.of(1 - pair->rank()) == nullptr, "another rank's memory");
    std::fill(buffer.begin(), buffer.end(), static_cast<float>(group.rank()));
    auto whole = parx::async_barrier(group);
    parx::all_reduce(*pair, buffer);
    whole.wait();
    parx::require(buffer[999] == static_cast<float>(group.rank() % 2 * 2 + 2), "wrong sum");
  }));
}

BOOST_AUTO_TEST_CASE(failures_reach_every_rank_over_it) {
  const auto started = std::chrono::steady_clock::now();
  const auto thrown = run_job(3, [](parx::process_group& group) {
    if (group.rank() == 2) throw std::runtime_error("the data are gone");
    std::vector<int> x(10);
    parx::all_reduce(group, x);
  });
  for (const int rank : {0, 1}) {
    const std::string& text = thrown[static_cast<std::size_t>(rank)];
    BOOST_TEST(text.find("rank 2: the data are gone") != std::string::npos, text);
  }
  const auto mismatch = run_job(2, [](parx::process_group& group) {
    std::vector<int> x(10);
    if (group.rank() == 0) parx::all_reduce(group, x);
    else parx::broadcast(group, x);
  });
  for (const std::string& text : mismatch) {
    BOOST_TEST(text.find("the ranks called different operations") != std::string::npos, text);
  }
  const auto left = run_job(2, [](parx::process_group& group) {
    std::vector<int> x(10);
    if (group.rank() == 0) parx::recv(group, x, 1);
  });
  BOOST_TEST(left[0].find("lost rank 1") != std::string::npos, left[0]);
  BOOST_TEST((std::chrono::steady_clock::now() - started < 10s));
}
