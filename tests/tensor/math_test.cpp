#include <parx/tensor/math.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

namespace detail = parx::detail;

namespace {
// Distance from the true value in units of the last place of float.
double error_in_ulp(float got, double expected) {
  const auto rounded = static_cast<float>(expected);
  const double unit = static_cast<double>(std::nextafter(std::abs(rounded),
                                                         std::numeric_limits<float>::infinity())) -
                      static_cast<double>(std::abs(rounded));
  return std::abs(static_cast<double>(got) - expected) / unit;
}
}  // namespace

BOOST_AUTO_TEST_CASE(exp_is_within_two_units_in_the_last_place) {
  double worst = 0;
  for (float x = -87.3F; x < 88.7F; x += 0.0013F) {
    worst = std::max(worst, error_in_ulp(detail::vector_exp(x), std::exp(static_cast<double>(x))));
  }
  BOOST_TEST(worst < 2.0);
  BOOST_TEST(detail::vector_exp(0.0F) == 1.0F);
}

BOOST_AUTO_TEST_CASE(exp_goes_to_zero_and_infinity_and_keeps_nan) {
  const float infinity = std::numeric_limits<float>::infinity();
  BOOST_TEST(detail::vector_exp(-infinity) == 0.0F);
  BOOST_TEST(detail::vector_exp(-1000.0F) == 0.0F);
  BOOST_TEST(detail::vector_exp(infinity) == infinity);
  BOOST_TEST(detail::vector_exp(1000.0F) == infinity);
  BOOST_TEST(std::isnan(detail::vector_exp(std::numeric_limits<float>::quiet_NaN())));
}

BOOST_AUTO_TEST_CASE(tanh_and_erf_are_within_a_few_units_and_never_leave_their_range) {
  double worst_tanh = 0, worst_erf = 0;
  for (float x = -12.0F; x < 12.0F; x += 0.00037F) {
    const float t = detail::vector_tanh(x), e = detail::vector_erf(x);
    worst_tanh =
        std::max(worst_tanh, std::abs(static_cast<double>(t) - std::tanh(static_cast<double>(x))));
    worst_erf =
        std::max(worst_erf, std::abs(static_cast<double>(e) - std::erf(static_cast<double>(x))));
    BOOST_REQUIRE(std::abs(t) <= 1.0F + 1e-6F);
    BOOST_REQUIRE(std::abs(e) <= 1.0F + 1e-6F);
  }
  BOOST_TEST(worst_tanh < 4e-7);
  BOOST_TEST(worst_erf < 4e-7);
  BOOST_TEST(std::isnan(detail::vector_tanh(std::numeric_limits<float>::quiet_NaN())));
  BOOST_TEST(std::isnan(detail::vector_erf(std::numeric_limits<float>::quiet_NaN())));
}

BOOST_AUTO_TEST_CASE(double_precision_is_that_of_the_standard_library) {
  BOOST_TEST(detail::vector_exp(1.25) == std::exp(1.25));
  BOOST_TEST(detail::vector_tanh(1.25) == std::tanh(1.25));
  BOOST_TEST(detail::vector_erf(1.25) == std::erf(1.25));
}
