#include <parx/data/subset.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <messages.hpp>

#include <parx/data/loader.hpp>

using namespace parx;
using parx_test::mentions;
using parx_test::message_of;

namespace {

data::tensor_dataset<std::int64_t> numbered(std::size_t size) {
  auto x = tensor<float>::empty({size, 1});
  auto y = tensor<std::int64_t>::empty({size});
  for (std::size_t i = 0; i < size; ++i) {
    x.data()[i] = static_cast<float>(i);
    y.data()[i] = static_cast<std::int64_t>(i);
  }
  return {x, y};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_split_has_every_sample_once_in_the_sizes_of_pytorch) {
  // torch.utils.data.random_split: 10 by {0.33, 0.33, 0.34} are 4, 3, 3.
  const auto all = numbered(10);
  const auto parts = data::random_split(all, {0.33, 0.33, 0.34});
  BOOST_TEST_REQUIRE(parts.size() == 3U);
  BOOST_TEST(parts[0].size() == 4U);
  BOOST_TEST(parts[1].size() == 3U);
  BOOST_TEST(parts[2].size() == 3U);
  std::set<std::int64_t> seen;
  for (const auto& part : parts) {
    const data::loader loader{part, {.batch_size = 2}};
    for (auto& batch : loader.epoch(0)) {
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (batch.weights.data()[i] == 0) continue;
        BOOST_TEST(batch.x.data()[i] == static_cast<float>(batch.y.data()[i]));
        BOOST_TEST(seen.insert(batch.y.data()[i]).second);
      }
    }
  }
  BOOST_TEST(seen.size() == 10U);
}

BOOST_AUTO_TEST_CASE(a_split_is_a_function_of_its_seed) {
  const auto all = numbered(100);
  const auto rows = [&](std::uint64_t seed) {
    return data::random_split(all, {0.5, 0.5}, seed)[0].rows();
  };
  BOOST_TEST((rows(1) == rows(1)));
  BOOST_TEST((rows(1) != rows(2)));
  BOOST_TEST(!std::is_sorted(rows(1).begin(), rows(1).end()));
}

BOOST_AUTO_TEST_CASE(a_subset_keeps_its_order_and_may_be_cut_again) {
  const auto all = numbered(6);
  const data::subset some(all, {5, 0, 3, 3});
  const std::vector<std::size_t> first{0, 2};
  const auto batch = some.fetch(first);
  BOOST_TEST(batch.y.data()[0] == 5);
  BOOST_TEST(batch.y.data()[1] == 3);
  const data::subset fewer(some, {1});
  BOOST_TEST(fewer.fetch(std::vector<std::size_t>{0}).y.data()[0] == 0);
}

BOOST_AUTO_TEST_CASE(impossible_splits_are_refused) {
  const auto all = numbered(6);
  const auto refusal = [&](const std::vector<double>& fractions) {
    return message_of([&] { (void)data::random_split(all, fractions); });
  };
  const auto unknown = message_of([&] { data::subset(all, {1, 6}); });
  BOOST_TEST(mentions(unknown, "usage: ", "sample 6", "data set of 6"), unknown);
  BOOST_TEST(mentions(refusal({0.8, 0.1}), "usage: ", "add up to 0.9"), refusal({0.8, 0.1}));
  BOOST_TEST(mentions(refusal({1.5, -0.5}), "fractions above 0"), refusal({1.5, -0.5}));
  BOOST_TEST(mentions(refusal({}), "fractions above 0"), refusal({}));
  BOOST_TEST(mentions(refusal({0.99, 0.01}), "6 samples", "6, 0", "empty"), refusal({0.99, 0.01}));
}
