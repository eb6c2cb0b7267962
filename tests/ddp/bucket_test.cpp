#include <parx/ddp/bucket.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
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
