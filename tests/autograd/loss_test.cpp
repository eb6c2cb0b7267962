#include <parx/autograd/ops/loss.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <parx/autograd/ops/linear_cross_entropy.hpp>
#include <parx/autograd/ops/matmul.hpp>
#include <parx/autograd/parameter.hpp>

using namespace parx;

BOOST_AUTO_TEST_CASE(equal_logits_cost_the_logarithm_of_the_number_of_classes) {
  const auto loss = cross_entropy(variable<float>(tensor<float>::full({3, 8}, 2.5F)),
                                  tensor<int>::from({0, 5, 7}, {3}));
  BOOST_TEST(loss.count == 3.0);
  BOOST_TEST(loss.mean() == std::log(8.0F), boost::test_tools::tolerance(1e-6F));
}

BOOST_AUTO_TEST_CASE(cross_entropy_and_its_gradient_agree_with_the_definition) {
  const auto logits = tensor<double>::from({1.0, -2.0, 0.5, 3.0, 0.0, 1.5}, {2, 3});
  const parameter<double> x("x", logits);
  const auto labels = tensor<int>::from({2, 0}, {2});
  const auto loss = cross_entropy(x, labels);
  loss.backward();
  double expected = 0;
  for (std::size_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (std::size_t c = 0; c < 3; ++c) sum += std::exp(logits.at(row, c));
    const auto label = static_cast<std::size_t>(labels.at(row));
    expected -= std::log(std::exp(logits.at(row, label)) / sum);
    for (std::size_t c = 0; c < 3; ++c) {
      const double gradient = (std::exp(logits.at(row, c)) / sum - (c == label ? 1 : 0)) / 2;
      BOOST_TEST(x.grad().at(row, c) == gradient, boost::test_tools::tolerance(1e-12));
    }
  }
  BOOST_TEST(loss.sum.item() == expected, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_refused_names_the_line_of_the_call) {
  const variable<float> y(tensor<float>::zeros({2, 3}));
  const auto said = [](auto call) {
    try {
      call();
    } catch (const usage_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const int line = __LINE__;
  const std::string shapes = said([&] { (void)cross_entropy(y, tensor<int>::zeros({3})); });
  const std::string label = said([&] { (void)cross_entropy(y, tensor<int>::full({2}, 3)); });
  const std::string other = said([&] { (void)mse(y, y, std::vector<float>(1)); });
  const std::string product = said([&] { (void)matmul(y, y); });
  BOOST_TEST(shapes.starts_with(fmt::format("cross_entropy at loss_test.cpp:{}: ", line + 1)));
  BOOST_TEST(label.starts_with(fmt::format("cross_entropy at loss_test.cpp:{}: ", line + 2)));
  BOOST_TEST(other.starts_with(fmt::format("mse_loss at loss_test.cpp:{}: ", line + 3)));
  BOOST_TEST(product.starts_with(fmt::format("matmul at loss_test.cpp:{}: ", line + 4)));
}

BOOST_AUTO_TEST_CASE(logits_of_a_thousand_overflow_nothing) {
  const parameter<float> x("x", tensor<float>::from({1000, -1000, 0}, {1, 3}));
  const auto loss = cross_entropy(x, tensor<int>::from({1}, {1}));
  loss.backward();
  BOOST_TEST(loss.mean() == 2000.0F);
  BOOST_TEST(x.grad().at(0, 0) == 1.0F);
  BOOST_TEST(x.grad().at(0, 1) == -1.0F);
}

BOOST_AUTO_TEST_CASE(weights_and_ignored_labels_change_sum_and_count_alike) {
  const auto logits = tensor<float>::from({1, 2, 3, 4, 5, 7, 0, 0, 2}, {3, 3});
  const auto one = [&](std::size_t row, int label) {
    return static_cast<double>(cross_entropy(variable<float>(logits.slice(0, row, row + 1)),
                                             tensor<int>::from({label}, {1}))
                                   .sum.item());
  };
  const std::vector<float> weights{2, 0.5F, 1};
  const auto loss = cross_entropy(variable<float>(logits), tensor<int>::from({0, 2, -1}, {3}),
                                  {.ignore_index = -1, .row_weights = weights});
  BOOST_TEST(loss.count == 2.5);
  BOOST_TEST(static_cast<double>(loss.sum.item()) == 2 * one(0, 0) + 0.5 * one(1, 2),
             boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(
    a_batch_of_padding_alone_has_mean_zero_and_zero_gradients_whatever_the_logits) {
  const parameter<float> x("x",
                           tensor<float>::full({2, 3}, std::numeric_limits<float>::quiet_NaN()));
  const auto loss = cross_entropy(x, tensor<int>::full({2}, -100));
  BOOST_TEST(loss.count == 0.0);
  BOOST_TEST(loss.mean() == 0.0F);
  loss.backward();
  for (const float g : x.grad()) BOOST_TEST(g == 0.0F);

  const parameter<float> y("y",
                           tensor<float>::full({2, 3}, std::numeric_limits<float>::infinity()));
  const std::vector<float> nothing(2, 0.0F);
  const auto squares = mse(y, variable<float>(tensor<float>::zeros({2, 3})), nothing);
  squares.backward();
  BOOST_TEST(squares.mean() == 0.0F);
  for (const float g : y.grad()) BOOST_TEST(g == 0.0F);
}

BOOST_AUTO_TEST_CASE(backward_gives_the_gradient_of_the_mean) {
  const parameter<double> x("x", tensor<double>::from({1, 2, 3, 4}, {4}));
  const auto loss = mse(x, variable<double>(tensor<double>::zeros({4})));
  BOOST_TEST(loss.count == 4.0);
  BOOST_TEST(loss.mean() == 7.5);
  loss.backward();
  for (std::size_t i = 0; i < 4; ++i) BOOST_TEST(x.grad().at(i) == 2 * x.value().at(i) / 4);
}

BOOST_AUTO_TEST_CASE(weights_of_rows_are_borrowed_for_the_call_alone) {
  const parameter<double> x("x", tensor<double>::from({1.0, -2.0, 0.5, 3.0, 0.0, 1.5}, {2, 3}));
  const parameter<double> w("w", tensor<double>::from({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3}));
  const auto labels = tensor<int>::from({2, 0}, {2});
  const auto target = variable<double>(tensor<double>::full({2, 3}, 0.25));
  const std::vector<float> kept{0.5F, 2.0F};
  const auto gradient = [&] { return std::vector<double>(x.grad().begin(), x.grad().end()); };
  const auto expect_same = [&](auto make) {
    x.zero_grad();
    make(std::span<const float>(kept)).backward();
    const std::vector<double> expected = gradient();
    std::vector<float> weights = kept;
    const auto loss = make(std::span<const float>(weights));
    std::fill(weights.begin(), weights.end(), 99.0F);
    x.zero_grad();
    loss.backward();
    BOOST_TEST(gradient() == expected);
  };
  expect_same([&](auto weights) { return cross_entropy(x, labels, {.row_weights = weights}); });
  expect_same([&](auto weights) { return mse(x, target, weights); });
  expect_same([&](auto weights) {
    return linear_cross_entropy(x, w, {}, labels, {.row_weights = weights});
  });
}

BOOST_AUTO_TEST_CASE(a_loss_of_two_parts_has_the_sum_of_their_means_and_of_their_gradients) {
  const parameter<double> x("x", tensor<double>::from({1.0, -2.0, 0.5, 3.0, 0.0, 1.5}, {2, 3}));
  const auto labels = tensor<int>::from({2, 0}, {2});
  const auto target = variable<double>(tensor<double>::full({2, 3}, 0.25));
  const auto gradient_of = [&](const weighted_loss<double>& loss) {
    x.zero_grad();
    loss.backward();
    return std::vector<double>(x.grad().begin(), x.grad().end());
  };
  const auto hard = gradient_of(cross_entropy(x, labels)), soft = gradient_of(mse(x, target));
  const auto both = cross_entropy(x, labels) + 0.5 * counted_as(2, mse(x, target));
  const auto near = boost::test_tools::tolerance(1e-14);
  BOOST_TEST(both.count == 2);
  BOOST_TEST(both.mean() == cross_entropy(x, labels).mean() + mse(x, target).mean() / 2, near);
  const auto found = gradient_of(both);
  for (std::size_t i = 0; i < 6; ++i) BOOST_TEST(found[i] == hard[i] + soft[i] / 2, near);

  BOOST_CHECK_EXCEPTION((void)(cross_entropy(x, labels) + mse(x, target)), usage_error,
                        [](const auto& refused) {
                          return std::string(refused.what())
                              .starts_with(
                                  "a loss that counts 6 elements is added to one that "
                                  "counts 2");
                        });
  // Micro-batches without elements add nothing, whatever they count.
  const weighted_loss<double> empty{mse(x, target).sum * 0, 0};
  BOOST_TEST((empty + empty).count == 0);
  BOOST_TEST((counted_as(3, empty) + weighted_loss<double>{mse(x, target).sum, 3}).count == 3);
}

BOOST_AUTO_TEST_CASE(a_label_outside_the_classes_is_named_with_its_row) {
  const variable<float> logits = tensor<float>::zeros({2, 3});
  BOOST_CHECK_EXCEPTION(
      (void)cross_entropy(logits, tensor<int>::from({0, 3}, {2})), usage_error, [](const auto& e) {
        const std::string text = e.what();
        return text.find("row 1") != std::string::npos && text.find("is 3") != std::string::npos &&
               text.find("3 classes (the last axis), counted from 0") != std::string::npos;
      });
  BOOST_CHECK_THROW((void)cross_entropy(logits, tensor<int>::from({0, -1}, {2})), usage_error);
  BOOST_CHECK_THROW((void)cross_entropy(logits, tensor<int>::from({0}, {1})), usage_error);
  BOOST_CHECK_EXCEPTION(
      (void)mse(logits, variable<float>(tensor<float>::zeros({3}))), usage_error,
      [](const auto& e) {
        return std::string(e.what()).find("needs a target of the same shape, not (3)") !=
               std::string::npos;
      });
}
