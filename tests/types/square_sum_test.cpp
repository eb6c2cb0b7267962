#include <parx/types/square_sum.hpp>

#include <types/square_oracle.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include <fmt/format.h>

#include <parx/tensor/flush_denormals.hpp>

#include <boost/test/unit_test.hpp>

namespace {

using parx::square_sum;

template <typename T>
square_sum sum_of(const std::vector<T>& values) {
  square_sum sum;
  sum.add(std::span<const T>(values));
  return sum;
}
std::vector<std::int64_t> words_of(square_sum sum) {
  const auto words = sum.words();
  return {words.begin(), words.end()};
}

/// Values whose exponents are spread over `range` powers of two below `highest`.
template <typename T>
std::vector<T> values_in(std::size_t count, int highest, int range, std::mt19937_64& random) {
  std::vector<T> values(count);
  std::uniform_real_distribution<double> significand(1, 2);
  std::uniform_int_distribution<int> below(0, range);
  for (T& value : values) {
    const double one = std::ldexp(significand(random), highest - 1 - below(random));
    value = static_cast<T>(random() % 2 == 0 ? one : -one);
  }
  return values;
}
/// Any finite values: every bit pattern is equally likely.
template <typename T, typename Bits>
std::vector<T> any_finite(std::size_t count, std::mt19937_64& random) {
  std::vector<T> values;
  while (values.size() < count) {
    const T value = std::bit_cast<T>(static_cast<Bits>(random()));
    if (std::isfinite(static_cast<double>(value))) values.push_back(value);
  }
  return values;
}

template <typename T>
void check_norm(const std::vector<T>& values, const char* what) {
  const auto expected = parx_test::sum_of_squares<T>(values);
  const double norm = sum_of(values).norm();
  BOOST_TEST(parx_test::is_root(expected, norm),
             fmt::format("{}: {} values of {} bytes: {}", what, values.size(), sizeof(T), norm));
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_norm_is_the_root_of_a_sum_of_4480_bits_rounded_once) {
  std::mt19937_64 random(1);
  for (const std::size_t count : {0U, 1U, 2U, 15U, 16U, 31U, 33U, 100U, 2048U, 2049U, 5000U}) {
    for (const int range : {0, 3, 24, 25, 26, 27, 28, 48, 50, 52, 54, 100, 250}) {
      for (const int highest : {128, 1, -60, -125}) {
        const int possible = std::min(range, highest + 148);
        check_norm(values_in<float>(count, highest, possible, random), "powers of two");
      }
    }
    check_norm(any_finite<float, std::uint32_t>(count, random), "any bits");
    check_norm(any_finite<double, std::uint64_t>(count, random), "any bits");
    check_norm(any_finite<parx::bfloat16, std::uint16_t>(count, random), "any bits");
    check_norm(any_finite<parx::float16, std::uint16_t>(count, random), "any bits");
    check_norm(values_in<double>(count, 0, 10, random), "powers of two");
    check_norm(values_in<double>(count, -1000, 72, random), "powers of two");
    check_norm(values_in<parx::bfloat16>(count, 0, 10, random), "powers of two");
    check_norm(std::vector<float>(count), "zeros");
  }
  // Few large values among small ones, zeros among others: blocks of which a part is outside the
  // window.
  for (const int gap : {20, 26, 40, 51, 60, 200}) {
    auto values = values_in<float>(4096, 100, 3, random);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % 7 != 0) values[i] = std::ldexp(values[i], -gap);
      if (i % 5 == 0) values[i] = 0;
    }
    check_norm(values, "a gap");
  }
}

BOOST_AUTO_TEST_CASE(neither_order_nor_division_changes_a_bit) {
  std::mt19937_64 random(2);
  for (const int range : {2, 40, 200}) {
    auto values = values_in<float>(20'000, 60, range, random);
    values[77] = std::numeric_limits<float>::denorm_min();
    const auto whole = words_of(sum_of(values));
    const double norm = sum_of(values).norm();
    for (const std::size_t parts : {1U, 2U, 3U, 7U, 1000U}) {
      std::shuffle(values.begin(), values.end(), random);
      std::vector<square_sum> sums(parts);
      for (std::size_t at = 0; at < values.size();) {
        const std::size_t count = std::min<std::size_t>(random() % 5000, values.size() - at);
        sums[random() % parts].add(std::span<const float>(values).subspan(at, count));
        at += count;
      }
      std::shuffle(sums.begin(), sums.end(), random);
      square_sum merged;
      for (const square_sum& each : sums) merged += each;
      BOOST_TEST(words_of(merged) == whole);
      BOOST_TEST(merged.norm() == norm);

      // As ranks do it: the words are added as integers.
      square_sum total = sums[0];
      const auto words = total.words();
      for (std::size_t rank = 1; rank < parts; ++rank) {
        const auto of_rank = sums[rank].words();
        for (std::size_t i = 0; i < words.size(); ++i) words[i] += of_rank[i];
      }
      BOOST_TEST(total.norm() == norm);
      BOOST_TEST(words_of(total) == whole);
    }
  }
}

BOOST_AUTO_TEST_CASE(denormals_count_where_arithmetic_flushes_them) {
  std::mt19937_64 random(3);
  const auto values = values_in<float>(5000, -120, 28, random);
  const auto expected = words_of(sum_of(values));
  const parx::flush_denormals flushing;
  BOOST_TEST(words_of(sum_of(values)) == expected);
}

BOOST_AUTO_TEST_CASE(infinities_and_nans_propagate_as_in_ieee_sums) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t count : {1U, 5U, 64U, 4096U}) {
    for (const std::size_t place : {std::size_t{0}, count / 2, count - 1}) {
      std::vector<float> values(count, 2.5F);
      values[place] = -infinity;
      BOOST_TEST(sum_of(values).norm() == infinity);
      square_sum merged = sum_of(std::vector<float>(100, 1.0F));
      merged += sum_of(values);
      BOOST_TEST(merged.norm() == infinity);
      merged.add(std::span(&nan, 1));
      BOOST_TEST(std::isnan(merged.norm()));
      values[place] = nan;
      BOOST_TEST(std::isnan(sum_of(values).norm()));
    }
  }
  BOOST_TEST(sum_of(std::vector{-std::numeric_limits<double>::infinity()}).norm() == infinity);
  BOOST_TEST(std::isnan(sum_of(std::vector<parx::float16>{parx::float16(nan)}).norm()));
  // Large, but not infinite: a sum of squares in double would be.
  BOOST_TEST(sum_of(std::vector{3e300, 4e300}).norm() == 5e300);
}

BOOST_AUTO_TEST_CASE(a_root_in_the_middle_of_two_doubles_goes_to_the_even_one) {
  // 3k, 4k, 5k: the root is exact, and 5k, odd, has 54 bits.
  for (const std::uint64_t k : {1801439850948201ULL, 1801439850948203ULL}) {
    const std::uint64_t root = 5 * k;
    const std::vector values{static_cast<double>(3 * k), static_cast<double>(4 * k)};
    const std::uint64_t even = root % 4 == 1 ? root - 1 : root + 1;
    BOOST_TEST(sum_of(values).norm() == static_cast<double>(even));
    // The least square more decides.
    auto more = values;
    more.push_back(std::numeric_limits<double>::denorm_min());
    BOOST_TEST(sum_of(more).norm() == static_cast<double>(root + 1));
  }
}

BOOST_AUTO_TEST_CASE(a_square_sum_of_2_to_the_60_values_does_not_overflow) {
  square_sum sum = sum_of(std::vector{1.5F, -0x1.8p100F});
  for (int doubling = 0; doubling < 60; ++doubling) sum += square_sum(sum);
  BOOST_TEST(sum.norm() == 0x1.8p130);
  square_sum largest = sum_of(std::vector(4, std::numeric_limits<double>::max()));
  BOOST_TEST(largest.norm() == std::numeric_limits<double>::infinity());
}
