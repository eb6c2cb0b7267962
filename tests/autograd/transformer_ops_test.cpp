#include <parx/autograd/ops.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/autograd/gradcheck.hpp>

#include <autograd/gradients.hpp>

using namespace parx;
using parx_test::check;
using parx_test::normal;

BOOST_AUTO_TEST_CASE(rms_norm_rotary_swiglu_and_packed_attention_have_exact_gradients) {
  check([](const auto& x) { return rms_norm(x[0], x[1]); },
        {normal({3, 5}, "x"), normal({5}, "scale")});
  const rotary_table<double> table(9, 4);
  for (const auto layout : {rotary_layout::interleaved, rotary_layout::halves}) {
    check(
        [&](const auto& x) { return rotary(x[0], table, {.layout = layout, .first_position = 3}); },
        {normal({2, 6, 8}, "x")});
  }
  check([](const auto& x) { return swiglu(x[0], x[1]); },
        {normal({3, 4}, "gate"), normal({3, 4}, "up")});
  check([](const auto& x) { return self_attention(x[0], {.heads = 2, .causal = true}); },
        {normal({2, 3, 12}, "qkv")});
}

BOOST_AUTO_TEST_CASE(rms_norm_makes_the_mean_square_one) {
  const auto y = rms_norm<double>(tensor<double>::from({3, -4, 0, 5}, {1, 4}),
                                  tensor<double>::from({1, 1, 1, 2}, {4}), {.epsilon = 0});
  const double root = std::sqrt(50.0 / 4);
  BOOST_TEST(y.value().at(0, 0) == 3 / root, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(y.value().at(0, 3) == 10 / root, boost::test_tools::tolerance(1e-14));
}

BOOST_AUTO_TEST_CASE(products_of_rotated_vectors_depend_on_their_distance_alone) {
  const rotary_table<double> table(50, 6);
  const auto q = normal({1, 6}, "q"), k = normal({1, 6}, "k");
  for (const auto layout : {rotary_layout::interleaved, rotary_layout::halves}) {
    const auto product = [&](std::size_t at_q, std::size_t at_k) {
      const auto a = rotary<double>(q, table, {.layout = layout, .first_position = at_q});
      const auto b = rotary<double>(k, table, {.layout = layout, .first_position = at_k});
      return sum(a * b).item();
    };
    BOOST_TEST(product(3, 7) == product(30, 34), boost::test_tools::tolerance(1e-12));
    BOOST_TEST(product(0, 0) == sum(variable<double>(q) * variable<double>(k)).item(),
               boost::test_tools::tolerance(1e-12));
    BOOST_TEST(std::abs(product(3, 7) - product(3, 8)) > 1e-3);
  }
  // One pair, one radian for each position.
  const auto turned = rotary<double>(tensor<double>::from({1, 0}, {1, 2}),
                                     rotary_table<double>(3, 2), {.first_position = 2});
  BOOST_TEST(turned.value().at(0, 0) == std::cos(2.0));
  BOOST_TEST(turned.value().at(0, 1) == std::sin(2.0));
}

BOOST_AUTO_TEST_CASE(cross_entropy_with_smoothed_labels_is_the_one_of_the_mixed_distribution) {
  const auto logits = normal({3, 4}, "logits");
  const auto labels = tensor<std::int64_t>::from({1, -100, 3}, {3});
  const auto found = cross_entropy<double>(logits, labels, {.label_smoothing = 0.1});
  const auto log_p = log_softmax<double>(logits).value();
  double expected = 0;
  for (const std::size_t row : {0U, 2U}) {
    for (std::size_t c = 0; c < 4; ++c) {
      const bool hit = static_cast<std::int64_t>(c) == labels.data()[row];
      expected -= (0.025 + (hit ? 0.9 : 0.0)) * log_p.at(row, c);
    }
  }
  BOOST_TEST(found.sum.item() == expected, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(found.count == 2.0);
  const std::vector<float> weights{0.5F, 1, 2};
  check(
      [&](const auto& x) {
        return cross_entropy(x[0], labels, {.row_weights = weights, .label_smoothing = 0.2}).sum;
      },
      {logits});
}

BOOST_AUTO_TEST_CASE(a_table_of_angles_that_is_too_short_is_named) {
  BOOST_CHECK_EXCEPTION((void)rotary<float>(tensor<float>::zeros({1, 5, 4}),
                                            rotary_table<float>(6, 4), {.first_position = 2}),
                        usage_error, [](const usage_error& e) {
                          return std::string(e.what()).find("ends at 6") != std::string::npos;
                        });
}
