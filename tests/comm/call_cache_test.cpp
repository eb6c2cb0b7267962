#include <parx/comm/detail/issue/call_cache.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <parx/comm.hpp>
#include <parx/transport/inproc.hpp>

#include "count_allocations.hpp"

namespace {

using parx::detail::call_cache;
using parx::detail::call_key;
using parx::detail::prepared_call;
using parx_test::allocations;
using counts = std::vector<std::size_t>;
using plan = std::shared_ptr<const parx::execution_plan>;

/// The plan for `key`; make() returns its schedule if no call of its shape is kept.
template <typename Make>
plan find_plan(call_cache& cache, const call_key& key, Make make) {
  const prepared_call& found = cache.find(key, [&](const plan& known) {
    if (known != nullptr) return prepared_call{.plan = known};
    return prepared_call{.plan = plan(new parx::execution_plan(parx::make_plan(make())))};
  });
  return found.plan;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_plan_is_made_once_for_a_shape_and_again_for_each_difference) {
  call_cache cache;
  const counts one{1, 2, 3}, other{1, 3, 2}, shorter{1, 2}, none;
  int made = 0;
  const auto find = [&](const call_key& key) {
    return find_plan(cache, key, [&] {
      ++made;
      return parx::schedule{};
    });
  };
  const call_key base{.shape = {.what = parx::operation::all_to_all, .count = 6, .root = 0},
                      .counts = one,
                      .incoming = one};
  std::vector<call_key> keys(12, base);
  keys[1].shape.what = parx::operation::all_gather;
  keys[2].asked = parx::algorithm::ring;
  keys[3].shape.count = 7;
  keys[4].shape.root = 1;
  keys[5].shape.element_bytes = 8;
  keys[6].shape.order = parx::reduction_order::ranks;
  keys[7].shape.shared = parx::shared_buffers::input;
  keys[8].shape.shared = parx::shared_buffers::output;
  keys[9].counts = other;
  keys[10].incoming = shorter;
  keys[11].counts = none;
  std::vector<plan> plans;
  for (const auto& key : keys) plans.push_back(find(key));
  BOOST_TEST(made == 12);
  // The cache copies the counts, not their address.
  const counts copy = one;
  call_key same = base;
  same.counts = same.incoming = copy;
  BOOST_TEST((find(same) == plans[0]));
  for (std::size_t i = 0; i < keys.size(); ++i) BOOST_TEST((find(keys[i]) == plans[i]));
  BOOST_TEST(made == 12);
}

BOOST_AUTO_TEST_CASE(calls_of_one_shape_share_a_plan_and_each_keeps_what_its_header_says) {
  call_cache cache;
  int made = 0, plans = 0;
  const auto find = [&](const call_key& key) -> const prepared_call& {
    return cache.find(key, [&](const plan& known) {
      if (known == nullptr) ++plans;
      const plan steps =
          known != nullptr ? known : plan(new parx::execution_plan(parx::make_plan({})));
      prepared_call next{.plan = steps};
      next.header.count = static_cast<std::uint64_t>(++made);
      return next;
    });
  };
  std::vector<call_key> keys(8);
  keys[1].set_elements(1, 0, 0);
  keys[2].set_elements(0, 1, 0);
  keys[3].set_elements(0, 0, 1);
  keys[4].arithmetic = 1;
  keys[5].factor = 2;
  keys[6].file = "train.cpp";
  keys[7].line = 7;
  for (int round = 0; round < 3; ++round) {
    // In the order of the first round, and against it.
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::size_t at = round == 2 ? keys.size() - 1 - i : i;
      BOOST_TEST(find(keys[at]).header.count == at + 1);
    }
  }
  BOOST_TEST(made == 8);
  BOOST_TEST(plans == 1);
}

BOOST_AUTO_TEST_CASE(a_cache_that_is_full_starts_anew_while_old_plans_live_on) {
  call_cache cache;
  const auto find = [&](std::size_t count) {
    return find_plan(cache, {.shape = {.count = count}}, [&] {
      return parx::schedule{.name = {}, .actions = {}, .scratch_count = count};
    });
  };
  const auto first = find(0);
  for (std::size_t count = 1; count < 1000; ++count)
    BOOST_TEST(find(count)->steps.scratch_count == count);
  BOOST_TEST(first->steps.scratch_count == 0u);
  BOOST_TEST((find(0) != first));
}

BOOST_AUTO_TEST_CASE(a_cache_of_large_plans_does_not_grow_without_end) {
  call_cache cache;
  int made = 0;
  const auto find = [&](std::size_t count) {
    return find_plan(cache, {.shape = {.count = count}}, [&] {
      ++made;
      parx::schedule steps;
      steps.actions.resize(16'000);
      return steps;
    });
  };
  std::vector<std::weak_ptr<const parx::execution_plan>> plans;
  for (std::size_t count = 0; count < 100; ++count) plans.push_back(find(count));
  const auto kept =
      std::count_if(plans.begin(), plans.end(), [](const auto& each) { return !each.expired(); });
  BOOST_TEST((kept >= 1 && kept <= 4), kept << " of 100 large plans are kept");
  static_cast<void>(find(99));
  BOOST_TEST(made == 100);
}

BOOST_AUTO_TEST_CASE(issuing_a_call_allocates_nothing_once_its_plan_is_kept) {
  const auto network = std::make_shared<parx::inproc_network>(3);
  const parx::process_group group(network->attach(1));
  const counts cut{100, 7, 23}, pairs{4, 5, 6};  // rank 1 has 7, sends and receives 15
  const parx::block_counts sizes{cut};
  std::vector<float> x(7), all(130), from(15), to(15);
  const auto site = parx::call_site::current();
  const parx::user_operation then = parx::user_op([](float a, float b) { return a + b; });
  const auto round = [&] {
    using namespace parx::detail;
    const auto fill = [&](const collective_arguments& given) {
      call request;
      fill_call(group, given, request);
    };
    fill(all_reduce_arguments(group, all, all, parx::reduce_options{}, site));
    fill(all_reduce_arguments(group, all, all, then, site));
    fill(all_gather_arguments(group, x, all, parx::collective_options{}, site, &sizes));
    fill(reduce_scatter_arguments(group, all, x, parx::reduce_options{}, site, &sizes));
    fill(gather_arguments(group, x, all, parx::rooted_options{}, site, &sizes));
    fill(scatter_arguments(group, all, x, parx::rooted_options{.root = 2}, site, &sizes));
    fill(all_to_all_v_arguments(group, from, pairs, to, pairs, parx::collective_options{}, site));
    fill(scan_arguments(group, parx::operation::exscan, all, all, parx::scan_options{}, site));
  };
  const std::size_t before_plans = allocations;
  round();
  const std::size_t after_plans = allocations;
  for (int i = 0; i < 100; ++i) round();
  BOOST_TEST(after_plans > before_plans);  // the counter counts
  BOOST_TEST(allocations == after_plans);
}
