#include <parx/ddp/bucket.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

BOOST_AUTO_TEST_CASE(every_parameter_is_in_one_bucket_and_the_first_is_small) {
  std::vector<parx::bucket_parameter> parameters(40, {parx::dtype::float32, 300'000});
  parameters[7].type = parx::dtype::bfloat16;
  const auto buckets = parx::assign_buckets(parameters, {});
  std::vector<int> seen(parameters.size());
  for (const auto& each : buckets) {
    std::size_t end = 0;
    for (const auto& item : each.items) {
      ++seen[item.parameter];
      BOOST_TEST(item.offset >= end);
      BOOST_TEST(item.offset % parx::bucket_alignment == 0u);
      BOOST_TEST((parameters[item.parameter].type == each.type));
      end = item.offset + parameters[item.parameter].bytes;
    }
    BOOST_TEST(end <= each.bytes);
  }
  BOOST_TEST((std::count(seen.begin(), seen.end(), 1) == static_cast<std::ptrdiff_t>(seen.size())));
  BOOST_TEST(buckets.front().items.front().parameter == 39u);
  BOOST_TEST(buckets.front().bytes < std::size_t{2} << 20);
}

BOOST_AUTO_TEST_CASE(the_last_bucket_is_a_small_part_of_a_model_that_is_not_small_itself) {
  const auto last_share = [](std::size_t layers, std::size_t bytes) {
    const std::vector<parx::bucket_parameter> layer(layers, {parx::dtype::float32, bytes});
    const auto buckets = parx::assign_buckets(layer, {});
    return static_cast<double>(buckets.back().bytes) / static_cast<double>(layers * bytes);
  };
  BOOST_TEST(last_share(12, std::size_t{1} << 20) < 0.1);
  BOOST_TEST(last_share(64, std::size_t{256} << 10) < 0.1);
  BOOST_TEST(last_share(100, std::size_t{20} << 20) < 0.03);
  BOOST_TEST(last_share(12, std::size_t{30} << 10) == 1.0);  // one operation
}

BOOST_AUTO_TEST_CASE(groups_have_buckets_of_their_own_that_do_not_depend_on_other_groups) {
  // Sizes and dtypes of many kinds, from a generator of its own.
  std::uint32_t seed = 1;
  const auto next = [&] { return (seed = seed * 1664525 + 1013904223) >> 16; };
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<parx::bucket_parameter> all(5 + next() % 60);
    for (auto& each : all) {
      each = {next() % 3 == 0 ? parx::dtype::bfloat16 : parx::dtype::float32,
              64 * (1 + next() % 40'000), next() % 11 == 0, next() % 3};
    }
    const auto whole = parx::assign_buckets(all, {});
    for (std::size_t group = 0; group < 3; ++group) {
      std::vector<parx::bucket_parameter> own;
      std::vector<std::size_t> index_in_own(all.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        index_in_own[i] = own.size();
        if (all[i].group == group) own.push_back(all[i]);
      }
      const auto alone = parx::assign_buckets(own, {});
      std::size_t found = 0;
      for (const auto& bucket : whole) {
        if (bucket.group != group) continue;
        BOOST_TEST_REQUIRE(found < alone.size());
        const auto& same = alone[found++];
        BOOST_TEST(bucket.bytes == same.bytes);
        BOOST_TEST((bucket.type == same.type));
        BOOST_TEST_REQUIRE(bucket.items.size() == same.items.size());
        for (std::size_t i = 0; i < bucket.items.size(); ++i) {
          const std::size_t parameter = bucket.items[i].parameter;
          BOOST_TEST((all[parameter].group == group));
          BOOST_TEST(index_in_own[parameter] == same.items[i].parameter);
          BOOST_TEST(bucket.items[i].offset == same.items[i].offset);
        }
      }
      BOOST_TEST(found == alone.size());
    }
  }
}
