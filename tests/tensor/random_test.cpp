#include <parx/tensor/random.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using parx::philox4x32;
using parx::random_stream;
using parx::tensor;

BOOST_AUTO_TEST_CASE(philox_gives_the_known_answers_of_random123) {
  using block = parx::philox_counter;
  const auto zeros = philox4x32({0, 0, 0, 0}, {0, 0});
  BOOST_TEST((zeros == block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t f = 0xffffffff;
  BOOST_TEST(
      (philox4x32({f, f, f, f}, {f, f}) == block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  BOOST_TEST(
      (philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
       block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

BOOST_AUTO_TEST_CASE(a_stream_is_philox_with_the_seed_as_key_and_the_index_as_counter) {
  const std::uint64_t seed = 0x123456789abcdef0, path = parx::stable_hash("block.0.weight");
  std::vector<std::uint32_t> got(300);
  random_stream(seed, "block.0.weight")
      .words(5, 300, [&](const std::uint32_t* word, std::uint64_t at, std::size_t n) {
        std::copy_n(word, n, got.begin() + static_cast<std::ptrdiff_t>(at - 5));
      });
  for (std::uint32_t i = 0; i < 300; ++i) {
    const auto block = philox4x32(
        {(i + 5) / 4, 0, static_cast<std::uint32_t>(path), static_cast<std::uint32_t>(path >> 32)},
        {0x9abcdef0, 0x12345678});
    BOOST_REQUIRE(got[i] == block[(i + 5) % 4]);
  }
}

BOOST_AUTO_TEST_CASE(the_path_hash_is_stable) {
  // FNV-1a of "a" is 0xaf63dc4c8601ec8c; the mix is that of splitmix64.
  std::uint64_t hash = 0xaf63dc4c8601ec8c;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  BOOST_TEST(parx::stable_hash("a") == (hash ^ (hash >> 31)));
}

BOOST_AUTO_TEST_CASE(a_part_of_a_tensor_gets_the_numbers_that_the_whole_would) {
  const random_stream stream(7, "w");
  const auto whole = tensor<float>::empty({1000});
  const auto part = tensor<float>::empty({101});
  const auto wide = tensor<double>::empty({1000});
  const auto wide_part = tensor<double>::empty({101});
  for (const std::size_t first : {0U, 1U, 63U, 64U, 130U, 899U}) {
    stream.uniform(whole, 0.0F, 1.0F);
    stream.uniform(part.span(), 0.0F, 1.0F, first);
    BOOST_TEST(part.span() == whole.slice(0, first, first + 101).span(),
               boost::test_tools::per_element());
    stream.normal(whole, 0.0F, 1.0F);
    stream.normal(part.span(), 0.0F, 1.0F, first);
    BOOST_TEST(part.span() == whole.slice(0, first, first + 101).span(),
               boost::test_tools::per_element());
    stream.uniform(wide, 0.0, 1.0);
    stream.uniform(wide_part.span(), 0.0, 1.0, first);
    BOOST_TEST(wide_part.span() == wide.slice(0, first, first + 101).span(),
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(uniform_numbers_fill_their_interval_evenly) {
  const auto t = tensor<float>::empty({100'000});
  random_stream(1, "u").uniform(t, -2.0F, 2.0F);
  std::vector<int> bins(20, 0);
  for (const float x : t) {
    BOOST_REQUIRE(x >= -2.0F);
    BOOST_REQUIRE(x < 2.0F);
    ++bins[static_cast<std::size_t>((x + 2) * 5)];
  }
  double chi_squared = 0;
  for (const int count : bins) chi_squared += (count - 5000.0) * (count - 5000.0) / 5000.0;
  BOOST_TEST(chi_squared < 43.8);  // 19 degrees of freedom, 0.1 %
}

BOOST_AUTO_TEST_CASE(normal_numbers_have_the_moments_and_tails_of_the_normal_distribution) {
  const auto t = tensor<double>::empty({200'000});
  random_stream(1, "n").normal(t, 1.0, 2.0);
  double mean = 0, square = 0, fourth = 0;
  int beyond = 0;
  for (const double x : t) {
    const double z = (x - 1) / 2;
    mean += z;
    square += z * z;
    fourth += z * z * z * z;
    beyond += std::abs(z) > 1.959964;
  }
  const double n = 200'000;
  BOOST_TEST(std::abs(mean / n) < 0.01);
  BOOST_TEST(std::abs(square / n - 1) < 0.015);
  BOOST_TEST(std::abs(fourth / n - 3) < 0.12);
  BOOST_TEST(std::abs(beyond / n - 0.05) < 0.002);
}

BOOST_AUTO_TEST_CASE(a_permutation_has_every_number_once_and_depends_on_seed_and_path) {
  const auto order = random_stream(3, "p").permutation(1000);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < 1000; ++i) BOOST_REQUIRE(sorted[i] == i);
  BOOST_TEST((order == random_stream(3, "p").permutation(1000)));
  BOOST_TEST((order != random_stream(4, "p").permutation(1000)));
  BOOST_TEST((order != random_stream(3, "q").permutation(1000)));
  BOOST_TEST(random_stream(3, "p").permutation(0).empty());
}

BOOST_AUTO_TEST_CASE(all_orders_of_three_are_equally_likely) {
  std::vector<int> counts(27, 0);
  for (std::uint64_t i = 0; i < 6000; ++i) {
    const auto p = random_stream(9, "three").substream(i).permutation(3);
    ++counts[p[0] * 9 + p[1] * 3 + p[2]];
  }
  double chi_squared = 0;
  int seen = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++seen;
    chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  }
  BOOST_TEST(seen == 6);
  BOOST_TEST(chi_squared < 20.5);  // 5 degrees of freedom, 0.1 %
}
