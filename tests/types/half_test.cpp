#include <parx/types/half.hpp>

#include <types/half_oracle.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

namespace {

using parx::bfloat16;
using parx::float16;
using half_types = boost::mpl::list<float16, bfloat16>;

template <typename Half>
const half_oracle& oracle_of() {
  if constexpr (std::is_same_v<Half, float16>) return half_oracle::float16();
  else return half_oracle::bfloat16();
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

/// Each value of Half, each point halfway between two neighbours, the floats next to those, and a
/// million random floats (denormals and NaNs among them).
template <typename Half>
std::vector<float> telling_floats() {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> floats;
  const auto& magnitudes = oracle_of<Half>().magnitudes();
  for (std::size_t i = 0; i + 1 < magnitudes.size(); ++i) {
    const auto middle = static_cast<float>((magnitudes[i] + magnitudes[i + 1]) / 2);
    for (const float value : {static_cast<float>(magnitudes[i]), middle,
                              std::nextafter(middle, 0.0F), std::nextafter(middle, infinity)}) {
      floats.push_back(value);
      floats.push_back(-value);
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 1'000'000; ++i) {
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  using limits = std::numeric_limits<float>;
  for (const float value : {infinity, limits::max(), limits::min(), limits::denorm_min(),
                            65519.996F, 65520.0F}) {
    floats.push_back(value);
    floats.push_back(-value);
  }
  return floats;
}

/// The sign and the upper payload of a NaN, made quiet.
template <typename Half>
std::uint16_t narrowed_nan(float value) {
  const int fraction_bits = oracle_of<Half>().fraction_bits();
  const std::uint32_t exponent = 0x7FFFU & ~((1U << fraction_bits) - 1U);
  const std::uint32_t payload = (bits_of(value) & 0x7FFFFFU) >> (23 - fraction_bits);
  const std::uint32_t quiet = 1U << (fraction_bits - 1);
  return static_cast<std::uint16_t>((bits_of(value) >> 31U << 15U) | exponent | payload | quiet);
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(all_65536_values_widen_to_what_ieee_754_says, Half, half_types) {
  const auto& oracle = oracle_of<Half>();
  int wrong = 0;
  for (std::uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = Half::from_bits(bits);
    if (oracle.is_nan(bits)) {
      const bool quiet = (bits_of(value) & 0x00400000U) != 0;
      wrong += !(std::isnan(value) && quiet && std::signbit(value) == ((bits >> 15U) != 0));
    } else {
      wrong += bits_of(value) != bits_of(static_cast<float>(oracle.decode(bits)));
    }
  }
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(all_65536_values_survive_the_way_to_float, Half, half_types) {
  const auto& oracle = oracle_of<Half>();
  const auto quiet = 1U << (oracle.fraction_bits() - 1);
  int wrong = 0;
  for (std::uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const std::uint32_t expected = oracle.is_nan(bits) ? bits | quiet : bits;
    wrong += Half(float{Half::from_bits(bits)}).bits != expected;
  }
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(floats_round_to_the_nearest_value_ties_to_even, Half, half_types) {
  const auto& oracle = oracle_of<Half>();
  int wrong = 0;
  for (const float value : telling_floats<Half>()) {
    const std::uint16_t expected =
        std::isnan(value) ? narrowed_nan<Half>(value) : oracle.encode(value);
    if (Half(value).bits != expected && ++wrong < 5) {
      BOOST_ERROR("float " << value << " became " << Half(value).bits << ", not " << expected);
    }
  }
  BOOST_TEST(wrong == 0);
}

// By way of the nearest float, a double next to the middle of two halves would become that middle
// and then the even half, be it the farther one.
BOOST_AUTO_TEST_CASE_TEMPLATE(doubles_are_rounded_once, Half, half_types) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto& oracle = oracle_of<Half>();
  const auto& magnitudes = oracle.magnitudes();
  std::vector<double> doubles{0.0, infinity, 1e300, 1e-300,
                              std::numeric_limits<double>::denorm_min(),
                              std::numeric_limits<double>::max()};
  for (std::size_t i = 0; i + 1 < magnitudes.size(); ++i) {
    const double middle = (magnitudes[i] + magnitudes[i + 1]) / 2;
    for (const double value : {magnitudes[i], middle, std::nextafter(middle, 0.0),
                               std::nextafter(middle, infinity), middle * (1 + 0x1p-40)}) {
      doubles.push_back(value);
    }
  }
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponents(-30, 20);
  for (int i = 0; i < 100'000; ++i) doubles.push_back(std::exp2(exponents(random)));

  int wrong = 0;
  int wrong_by_way_of_float = 0;
  for (const double magnitude : doubles) {
    for (const double value : {magnitude, -magnitude}) {
      const Half implicit = value;
      wrong += implicit.bits != oracle.encode(value) || Half(value).bits != oracle.encode(value);
      wrong_by_way_of_float += Half(static_cast<float>(value)).bits != oracle.encode(value);
    }
  }
  BOOST_TEST(wrong == 0);
  BOOST_TEST(wrong_by_way_of_float > 1000, "the data must tell the two apart");
  BOOST_TEST(std::isnan(Half(std::numeric_limits<double>::quiet_NaN())));
}

BOOST_AUTO_TEST_CASE(integers_are_rounded_once) {
  constexpr int middle = (1 << 30) + (1 << 22);  // of two bfloat16, the lower one even
  BOOST_TEST(float{bfloat16(middle)} == 0x1p30F);
  BOOST_TEST(float{bfloat16(middle + 1)} == 0x1p30F + 0x1p23F);
  BOOST_TEST(float{bfloat16(-middle - 1)} == -0x1p30F - 0x1p23F);
}

// With F16C these are two different implementations.
BOOST_AUTO_TEST_CASE_TEMPLATE(bulk_and_single_conversion_give_the_same_bits, Half, half_types) {
  const std::vector<float> floats = telling_floats<Half>();
  std::vector<Half> halves(floats.size());
  parx::convert(floats.data(), halves.data(), floats.size());
  int wrong = 0;
  for (std::size_t i = 0; i < floats.size(); ++i) wrong += halves[i].bits != Half(floats[i]).bits;
  BOOST_TEST(wrong == 0);

  std::vector<Half> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = Half::from_bits(static_cast<std::uint16_t>(i));
  }
  std::vector<float> widened(all.size());
  parx::convert(all.data(), widened.data(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    wrong += bits_of(widened[i]) != bits_of(float{all[i]});
  }
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(bulk_conversion_writes_exactly_count_elements, Half, half_types) {
  for (const std::size_t count : {0U, 1U, 7U, 8U, 9U, 64U}) {
    const std::vector<float> floats(count, 1.5F);
    std::vector<Half> halves(count + 1, Half(-2.0F));
    parx::convert(floats.data(), halves.data(), count);
    BOOST_TEST(float{halves[count]} == -2.0F);
    for (std::size_t i = 0; i < count; ++i) BOOST_TEST(float{halves[i]} == 1.5F);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(limits_are_those_of_the_format, Half, half_types) {
  using limits = std::numeric_limits<Half>;
  const auto& magnitudes = oracle_of<Half>().magnitudes();
  const int fraction_bits = oracle_of<Half>().fraction_bits();
  BOOST_TEST(double{limits::max()} == magnitudes[magnitudes.size() - 2]);
  BOOST_TEST(double{limits::lowest()} == -magnitudes[magnitudes.size() - 2]);
  BOOST_TEST(double{limits::min()} == magnitudes[1U << fraction_bits]);
  BOOST_TEST(double{limits::denorm_min()} == magnitudes[1]);
  BOOST_TEST(double{limits::epsilon()} == std::ldexp(1.0, -fraction_bits));
  BOOST_TEST(std::isinf(limits::infinity()));
  BOOST_TEST(std::isnan(limits::quiet_NaN()));
  BOOST_TEST(std::ldexp(1.0, limits::max_exponent) == magnitudes.back());
  BOOST_TEST(std::ldexp(0.5, limits::min_exponent) == double{limits::min()});
}

BOOST_AUTO_TEST_CASE(arithmetic_happens_in_float_and_rounds_when_it_is_stored) {
  const bfloat16 one = 1.0F;
  const bfloat16 small = 0.00390625F;  // 2^-8: half of what bfloat16 can tell at 1
  BOOST_TEST((one + small) == 1.00390625F);
  BOOST_TEST(float{bfloat16(one + small)} == 1.0F);
  bfloat16 sum = one;
  sum += small;
  sum += small;
  BOOST_TEST(float{sum} == 1.0F);
  float16 product = 300.0F;
  product *= 300.0F;
  BOOST_TEST(std::isinf(product));
  BOOST_TEST(float{-one} == -1.0F);
  BOOST_TEST(float{float16(bfloat16(3))} == 3.0F);
  BOOST_TEST((small < one && one == 1.0F));
}

static_assert(float{parx::float16(65504.0F)} == 65504.0F, "conversion is constexpr");
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);
static_assert(sizeof(float16) == 2 && std::is_trivially_copyable_v<float16>);
