#include <parx/tensor/vector_math.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <parx/autograd/ops/detail/activations.hpp>
#include <parx/tensor/elementary.hpp>
#include <parx/tensor/pointwise.hpp>

namespace detail = parx::detail;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

template <std::size_t Bytes>
struct floats_type {
  typedef float type __attribute__((vector_size(Bytes)));
};
template <std::size_t Bytes>
using floats = typename floats_type<Bytes>::type;

/// f of each element of x, in vectors of this many bytes.
template <std::size_t Bytes, typename F>
std::vector<float> in_vectors(const std::vector<float>& x, F f) {
  constexpr std::size_t size = Bytes / sizeof(float);
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); i += size) {
    floats<Bytes> v{};
    const std::size_t count = std::min(size, x.size() - i);
    for (std::size_t k = 0; k < count; ++k) v[k] = x[i + k];
    v = f(v);
    for (std::size_t k = 0; k < count; ++k) y[i + k] = v[k];
  }
  return y;
}
template <typename F>
float at(float x, F f) {
  return in_vectors<16>({x}, f)[0];
}

constexpr auto exp_of = [](auto v) { return detail::vector_exp(v); };
constexpr auto tanh_of = [](auto v) { return detail::vector_tanh(v); };
constexpr auto log_of = [](auto v) { return detail::vector_log(v); };
constexpr auto log1p_of = [](auto v) { return detail::vector_log1p(v); };
constexpr auto expm1_of = [](auto v) { return detail::vector_expm1(v); };
constexpr auto erf_of = [](auto v) { return detail::vector_erf(v); };
constexpr auto atan_of = [](auto v) { return detail::vector_atan(v); };
constexpr auto sin_of = [](auto v) { return detail::vector_sin(v); };
constexpr auto cos_of = [](auto v) { return detail::vector_cos(v); };
constexpr auto cumulative_of = [](auto v) {
  return detail::normal_distribution<decltype(v)>(v).cumulative;
};
template <typename Function>
constexpr auto value = [](auto v) { return detail::value_of<Function>(v); };
template <typename Function>
constexpr auto slope = [](auto v) { return detail::slope_of<Function>(v); };

std::vector<float> range(float begin, float end, float step) {
  std::vector<float> x;
  for (float v = begin; v < end; v += step) x.push_back(v);
  return x;
}

/// The largest distance from the true value, in units of the last place of float.
template <typename Truth>
double worst_ulp(const std::vector<float>& x, const std::vector<float>& y, Truth truth) {
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = truth(static_cast<double>(x[i]));
    const float rounded = std::abs(static_cast<float>(expected));
    const double unit =
        static_cast<double>(std::nextafter(rounded, infinity)) - static_cast<double>(rounded);
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - expected) / unit);
  }
  return worst;
}
template <typename Truth>
double worst_difference(const std::vector<float>& x, const std::vector<float>& y, Truth truth) {
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst,
                     std::abs(static_cast<double>(y[i]) - truth(static_cast<double>(x[i]))));
  }
  return worst;
}

double cumulative_in_double(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double density_in_double(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }

}  // namespace

BOOST_AUTO_TEST_CASE(exp_is_within_1_1_units_in_the_last_place) {
  const auto x = range(-87.3F, 88.7F, 0.0013F);
  BOOST_TEST(worst_ulp(x, in_vectors<16>(x, exp_of), [](double v) { return std::exp(v); }) < 1.1);
  BOOST_TEST(at(0.0F, exp_of) == 1.0F);
}

BOOST_AUTO_TEST_CASE(exp_goes_to_zero_and_infinity_and_keeps_nan) {
  BOOST_TEST(at(-infinity, exp_of) == 0.0F);
  BOOST_TEST(at(-1000.0F, exp_of) == 0.0F);
  BOOST_TEST(at(-87.4F, exp_of) == 0.0F);
  BOOST_TEST(at(infinity, exp_of) == infinity);
  BOOST_TEST(at(88.8F, exp_of) == infinity);
  BOOST_TEST(std::isnan(at(not_a_number, exp_of)));
}

BOOST_AUTO_TEST_CASE(log_is_within_a_unit_in_the_last_place_and_knows_its_edges) {
  std::vector<float> x;
  for (float v = 1e-40F; v < 3e38F; v *= 1.00093F) x.push_back(v);
  const auto near_1 = range(0.5F, 2.0F, 0.000013F);
  const auto log_in_double = [](double v) { return std::log(v); };
  BOOST_TEST(worst_ulp(x, in_vectors<16>(x, log_of), log_in_double) < 1);
  BOOST_TEST(worst_ulp(near_1, in_vectors<16>(near_1, log_of), log_in_double) < 1);
  BOOST_TEST(at(0.0F, log_of) == -infinity);
  BOOST_TEST(at(infinity, log_of) == infinity);
  BOOST_TEST(std::isnan(at(-1.0F, log_of)));
  BOOST_TEST(std::isnan(at(not_a_number, log_of)));
}

BOOST_AUTO_TEST_CASE(log1p_and_expm1_keep_small_numbers) {
  std::vector<float> x;
  for (float v = 1e-30F; v < 80.0F; v *= 1.0013F) x.insert(x.end(), {v, v < 0.99F ? -v : v});
  BOOST_TEST(worst_ulp(x, in_vectors<16>(x, log1p_of), [](double v) { return std::log1p(v); }) < 4);
  BOOST_TEST(worst_ulp(x, in_vectors<16>(x, expm1_of), [](double v) { return std::expm1(v); }) < 4);
  BOOST_TEST(at(-1.0F, log1p_of) == -infinity);
  BOOST_TEST(at(infinity, log1p_of) == infinity);
  BOOST_TEST(at(infinity, expm1_of) == infinity);
  BOOST_TEST(at(-infinity, expm1_of) == -1.0F);
  BOOST_TEST(std::isnan(at(-2.0F, log1p_of)));
  BOOST_TEST(std::isnan(at(not_a_number, expm1_of)));
}

BOOST_AUTO_TEST_CASE(erf_and_atan_are_within_a_few_units_and_go_to_their_limits) {
  const auto x = range(-9.0F, 9.0F, 0.00031F), large = range(1.0F, 1e6F, 41.3F);
  const auto erf_in_double = [](double v) { return std::erf(v); };
  const auto atan_in_double = [](double v) { return std::atan(v); };
  BOOST_TEST(worst_difference(x, in_vectors<16>(x, erf_of), erf_in_double) < 2e-7);
  BOOST_TEST(worst_ulp(x, in_vectors<16>(x, erf_of), erf_in_double) < 4);
  BOOST_TEST(worst_ulp(x, in_vectors<16>(x, atan_of), atan_in_double) < 4);
  BOOST_TEST(worst_ulp(large, in_vectors<16>(large, atan_of), atan_in_double) < 4);
  BOOST_TEST(at(-infinity, erf_of) == -1.0F);
  BOOST_TEST(at(infinity, atan_of) == static_cast<float>(M_PI_2));
  BOOST_TEST(std::isnan(at(not_a_number, erf_of)));
  BOOST_TEST(std::isnan(at(not_a_number, atan_of)));
}

BOOST_AUTO_TEST_CASE(sin_and_cos_are_accurate_for_large_angles_too) {
  const auto all = range(-8200.0F, 8200.0F, 0.137F), usual = range(-10.0F, 10.0F, 0.00019F);
  const auto sin_in_double = [](double v) { return std::sin(v); };
  const auto cos_in_double = [](double v) { return std::cos(v); };
  BOOST_TEST(worst_difference(all, in_vectors<16>(all, sin_of), sin_in_double) < 1.2e-7);
  BOOST_TEST(worst_difference(all, in_vectors<16>(all, cos_of), cos_in_double) < 1.2e-7);
  BOOST_TEST(worst_difference(usual, in_vectors<16>(usual, sin_of), sin_in_double) < 1e-7);
  BOOST_TEST(worst_difference(usual, in_vectors<16>(usual, cos_of), cos_in_double) < 1e-7);
  BOOST_TEST(at(1e20F, sin_of) == static_cast<float>(std::sin(static_cast<double>(1e20F))));
  BOOST_TEST(at(-0.0F, sin_of) == 0.0F);
  BOOST_TEST(std::isnan(at(infinity, cos_of)));
  BOOST_TEST(std::isnan(at(not_a_number, sin_of)));
}

BOOST_AUTO_TEST_CASE(tanh_is_within_a_few_units_and_never_leaves_its_range) {
  const auto x = range(-12.0F, 12.0F, 0.00037F);
  const auto y = in_vectors<16>(x, tanh_of);
  const double bound = detail::simd::has_fma ? 3e-7 : 3.2e-7;
  BOOST_TEST(worst_difference(x, y, [](double v) { return std::tanh(v); }) < bound);
  BOOST_TEST(*std::max_element(y.begin(), y.end()) <= 1.0F);
  BOOST_TEST(*std::min_element(y.begin(), y.end()) >= -1.0F);
  BOOST_TEST(std::isnan(at(not_a_number, tanh_of)));
}

BOOST_AUTO_TEST_CASE(the_normal_distribution_keeps_its_relative_accuracy_in_the_tail) {
  const auto all = range(-13.0F, 13.0F, 0.00041F), tail = range(-5.0F, 5.0F, 0.00011F);
  BOOST_TEST(worst_difference(all, in_vectors<16>(all, cumulative_of), cumulative_in_double) <
             1.3e-7);
  BOOST_TEST(worst_ulp(tail, in_vectors<16>(tail, cumulative_of), cumulative_in_double) < 12);
  BOOST_TEST(at(0.0F, cumulative_of) == 0.5F);
  BOOST_TEST(at(infinity, cumulative_of) == 1.0F);
  BOOST_TEST(at(-infinity, cumulative_of) == 0.0F);
  BOOST_TEST(std::isnan(at(not_a_number, cumulative_of)));
}

BOOST_AUTO_TEST_CASE(gelu_and_its_slope_are_those_of_the_normal_distribution) {
  using gelu = detail::gelu_function<float>;
  const auto x = range(-9.0F, 9.0F, 0.00031F);
  const auto slope_in_double = [](double v) {
    return cumulative_in_double(v) + v * density_in_double(v);
  };
  BOOST_TEST(worst_difference(x, in_vectors<16>(x, value<gelu>),
                              [](double v) { return v * cumulative_in_double(v); }) < 5e-7);
  BOOST_TEST(worst_difference(x, in_vectors<16>(x, slope<gelu>), slope_in_double) < 2.5e-7);
  BOOST_TEST(at(infinity, value<gelu>) == infinity);
}

BOOST_AUTO_TEST_CASE(slopes_are_the_derivatives_of_their_values_in_double) {
  const auto check = []<typename Function>(Function) {
    for (double x = -6; x < 6; x += 0.01) {
      const double h = 1e-5;
      const double difference =
          (detail::value_of<Function>(x + h) - detail::value_of<Function>(x - h)) / (2 * h);
      BOOST_REQUIRE_SMALL(detail::slope_of<Function>(x) - difference, 1e-9);
    }
  };
  check(detail::gelu_function<double>{});
  check(detail::gelu_tanh_function<double>{});
  check(detail::silu_function<double>{});
}

BOOST_AUTO_TEST_CASE(relus_slope_is_1_above_0_and_0_from_there_down) {
  using relu = detail::relu_function<float>;
  for (const float x : {-infinity, -1.0F, -0.0F, 0.0F}) BOOST_TEST(at(x, slope<relu>) == 0.0F);
  for (const float x : {1e-45F, 1.0F, infinity}) BOOST_TEST(at(x, slope<relu>) == 1.0F);
  BOOST_TEST(std::isnan(at(not_a_number, value<relu>)));
}

BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_the_width_of_the_vectors) {
  constexpr std::size_t widest = detail::simd::register_bytes;
  const auto x = range(-20.0F, 20.0F, 0.0037F);
  const auto check = [&](auto f) {
    const auto bits = [](const std::vector<float>& y) {
      std::vector<std::uint32_t> result;
      for (const float v : y) result.push_back(std::bit_cast<std::uint32_t>(v));
      return result;
    };
    const auto narrow = bits(in_vectors<16>(x, f));
    if constexpr (widest >= 32) BOOST_TEST((narrow == bits(in_vectors<32>(x, f))));
    if constexpr (widest >= 64) BOOST_TEST((narrow == bits(in_vectors<64>(x, f))));
  };
  check(exp_of);
  check(tanh_of);
  check(log_of);
  check(log1p_of);
  check(expm1_of);
  check(erf_of);
  check(atan_of);
  check(sin_of);
  check(cos_of);
  check(value<detail::gelu_function<float>>);
  check(slope<detail::gelu_function<float>>);
  check(value<detail::gelu_tanh_function<float>>);
  check(slope<detail::gelu_tanh_function<float>>);
  check(value<detail::silu_function<float>>);
  check(slope<detail::silu_function<float>>);
}

#if defined(PARX_VECTORS_AVX2) || defined(PARX_VECTORS_AVX512)
BOOST_AUTO_TEST_CASE(the_bits_of_exp_are_those_of_its_formula_with_std_fma) {
  const auto formula = [](float x) {
    const float shifted = std::fma(x, 1.44269504F, 12582912.0F), n = shifted - 12582912.0F;
    const float r = std::fma(n, 2.12194440e-4F, std::fma(n, -0.693359375F, x));
    float p = 1.9875691500e-4F;
    for (const float c : {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F,
                          5.0000001201e-1F}) {
      p = std::fma(p, r, c);
    }
    const float square = p * r;
    return std::ldexp(std::fma(square, r, r) + 1.0F, static_cast<int>(n));
  };
  const auto x = range(-80.0F, 80.0F, 0.0071F);
  const auto y = in_vectors<16>(x, exp_of);
  for (std::size_t i = 0; i < x.size(); ++i) BOOST_REQUIRE(y[i] == formula(x[i]));
}
#endif

BOOST_AUTO_TEST_CASE(double_precision_is_that_of_the_standard_library) {
  BOOST_TEST(detail::vector_exp(1.25) == std::exp(1.25));
  BOOST_TEST(detail::vector_tanh(1.25) == std::tanh(1.25));
  BOOST_TEST(detail::normal_distribution<double>(-3).cumulative ==
             0.5 * std::erfc(3 / std::sqrt(2.0)), boost::test_tools::tolerance(1e-15));
}

BOOST_AUTO_TEST_CASE(the_last_elements_are_computed_as_the_others_and_nothing_beyond_is_touched) {
  constexpr std::size_t size = detail::packet_size<float>;
  for (std::size_t count = 0; count <= 2 * size + 1; ++count) {
    // At the end of a vector, so that sanitizers notice what is read beyond it.
    std::vector<float> x(count), y(count + 1, 7.0F);
    for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(i) * 0.3F - 2.0F;
    detail::for_each_packet<float>(count, [&](std::size_t i, auto... left) PARX_PACKET_BODY {
      const auto v = detail::load_packet(x.data() + i, left...);
      detail::store_packet(y.data() + i, detail::vector_exp(v), left...);
    });
    for (std::size_t i = 0; i < count; ++i) BOOST_REQUIRE(y[i] == at(x[i], exp_of));
    BOOST_TEST(y[count] == 7.0F);
  }
}

BOOST_AUTO_TEST_CASE(a_map_on_packets_takes_broadcast_and_strided_operands) {
  const auto add = parx::on_packets([](auto a, auto b) { return a + b; });
  std::vector<float> numbers(6 * 11);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const auto m = parx::tensor<float>::from(numbers, {6, 11});
  const auto column = parx::tensor<float>::from(std::vector<float>{10, 20, 30, 40, 50, 60}, {6, 1});
  const auto sums = parx::map(add, m, column);
  const auto t = m.transpose(0, 1);
  const auto turned = parx::map(add, t, t.contiguous());
  parx::map_into(t, add, t, parx::tensor<float>::scalar(1.0F));
  for (std::size_t r = 0; r < 6; ++r) {
    for (std::size_t c = 0; c < 11; ++c) {
      const float v = numbers[r * 11 + c];
      BOOST_REQUIRE(sums.data()[r * 11 + c] == v + 10.0F * static_cast<float>(r + 1));
      BOOST_REQUIRE(turned.data()[c * 6 + r] == 2.0F * v);
      BOOST_REQUIRE(m.data()[r * 11 + c] == v + 1.0F);
    }
  }
}
