#include <parx/autograd/gradcheck.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <vector>

#include <parx/autograd/ops.hpp>

#include <autograd/gradients.hpp>

using namespace parx;
using parx_test::check;
using parx_test::normal;

BOOST_AUTO_TEST_CASE(gradcheck_finds_a_wrong_factor_a_missing_gradient_and_a_lost_accumulation) {
  const auto wrong_factor = [](const auto& x) {
    return differentiable(
        map([](double v) { return v * v; }, x[0].value()),
        [v = x[0].value()](const tensor<double>& upstream, grad_sink<double> dx) {
          dx.map([](double a, double u) { return 2.001 * a * u; }, v, upstream);
        },
        x[0]);
  };
  const auto missing = [](const auto& x) {
    return differentiable(
        x[0].value().clone(), [](const tensor<double>&, grad_sink<double>) {}, x[0]);
  };
  const auto overwrites = [](const auto& x) {
    return differentiable(
        x[0].value().clone(),
        [](const tensor<double>& upstream, grad_sink<double> dx) {
          dx.memory().values.copy_from(upstream);
        },
        x[0]);
  };
  BOOST_TEST(!gradcheck(wrong_factor, {normal({4}, "x")}).passed);
  BOOST_TEST(!gradcheck(missing, {normal({4}, "x")}).passed);
  BOOST_TEST(!gradcheck(overwrites, {normal({4}, "x")}).passed);
  BOOST_TEST(gradcheck(wrong_factor, {normal({4}, "x")}).report.find("element") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(arithmetic_with_every_kind_of_broadcasting_has_exact_gradients) {
  const std::vector<std::vector<tensor<double>>> pairs{
      {normal({3, 4}, "a"), normal({3, 4}, "b")},
      {normal({3, 4}, "a"), normal({4}, "b")},
      {normal({3, 1}, "a"), normal({2, 1, 4}, "b")},
      {normal({}, "a"), normal({2, 3}, "b")},
      {normal({2, 3, 4}, "a"), normal({3, 1}, "b")}};
  for (const auto& pair : pairs) {
    check([](const auto& x) { return x[0] + x[1]; }, pair);
    check([](const auto& x) { return x[0] - x[1]; }, pair);
    check([](const auto& x) { return x[0] * x[1]; }, pair);
    check([](const auto& x) { return x[0] / (x[1] * x[1] + 1.0); }, pair);
  }
  check([](const auto& x) { return 2.0 - (3.0 * x[0] + 1.0) / 4.0 - (0.5 - x[0]) * 2.0 - 1.5; },
        pairs[0]);
  check([](const auto& x) { return -x[0]; }, pairs[0]);
}

BOOST_AUTO_TEST_CASE(activations_have_exact_gradients) {
  const auto x = normal({37}, "x");
  check([](const auto& v) { return relu(v[0]); }, {x});
  check([](const auto& v) { return gelu(v[0]); }, {x});
  check([](const auto& v) { return gelu(v[0], gelu_form::tanh); }, {x});
  check([](const auto& v) { return silu(v[0]); }, {x});
  check([](const auto& v) { return tanh(v[0]); }, {x});
  check([](const auto& v) { return sigmoid(v[0]); }, {x});
  check([](const auto& v) { return gelu(transpose(v[0])); }, {normal({3, 4}, "x")});
}

BOOST_AUTO_TEST_CASE(
    products_of_plain_batched_broadcast_and_transposed_matrices_have_exact_gradients) {
  const auto product = [](const auto& x) { return matmul(x[0], x[1]); };
  check(product, {normal({3, 4}, "a"), normal({4, 5}, "b")});
  check(product, {normal({2, 3, 4}, "a"), normal({2, 4, 5}, "b")});
  check(product, {normal({2, 1, 3, 4}, "a"), normal({3, 4, 5}, "b")});
  check(product, {normal({2, 3, 4}, "a"), normal({4, 5}, "b")});
  check(product, {normal({3, 4}, "a"), normal({2, 4, 5}, "b")});
  check([](const auto& x) { return matmul(transpose(x[0]), transpose(x[1])); },
        {normal({2, 4, 3}, "a"), normal({2, 5, 4}, "b")});
  check([](const auto& x) { return matmul(x[0], transpose(x[0])); }, {normal({3, 4}, "a")});
}

BOOST_AUTO_TEST_CASE(linear_has_exact_gradients_with_and_without_bias) {
  check([](const auto& x) { return linear(x[0], x[1], x[2]); },
        {normal({2, 3, 4}, "x"), normal({5, 4}, "w"), normal({5}, "b")});
  check([](const auto& x) { return linear(x[0], x[1]); },
        {normal({3, 4}, "x"), normal({5, 4}, "w")});
  for (const auto f :
       {activation::relu, activation::gelu, activation::gelu_tanh, activation::silu}) {
    check([=](const auto& x) { return linear(x[0], x[1], x[2], f); },
          {normal({70, 4}, "x"), normal({5, 4}, "w"), normal({5}, "b")});
    check([=](const auto& x) { return linear(x[0], x[1], {}, f); },
          {normal({3, 4}, "x"), normal({5, 4}, "w")});
    check([=](const auto& x) { return linear(x[0], x[1], x[2], f, weight_layout::in_out); },
          {normal({2, 3, 4}, "x"), normal({4, 5}, "w"), normal({5}, "b")});
  }
  check([](const auto& x) { return linear(x[0], x[1]); }, {normal({4}, "x"), normal({5, 4}, "w")});
}

BOOST_AUTO_TEST_CASE(views_have_exact_gradients) {
  const auto x = normal({2, 3, 4}, "x");
  check([](const auto& v) { return reshape(permute(v[0], {2, 0, 1}), {4, infer}); }, {x});
  check([](const auto& v) { return flatten(transpose(v[0], 0, 2)); }, {x});
  check([](const auto& v) { return slice(v[0], 1, 1, 3) + slice(v[0], 1, 0, 2); }, {x});
  check([](const auto& v) { return select(v[0], -1, 2); }, {x});
  check([](const auto& v) { return squeeze(select(unsqueeze(v[0], 1), 2, 1), 1); }, {x});
  check([](const auto& v) { return concat({v[0], v[1], v[0]}, 1); }, {x, normal({2, 1, 4}, "y")});
}

BOOST_AUTO_TEST_CASE(sums_and_means_have_exact_gradients) {
  const auto x = normal({2, 3, 4}, "x");
  check([](const auto& v) { return sum(v[0]); }, {x});
  check([](const auto& v) { return sum(v[0], {0, 2}); }, {x});
  check([](const auto& v) { return mean(v[0]) + mean(v[0], {-1}, reduced_axes::kept); }, {x});
  check([](const auto& v) { return sum(transpose(v[0]), {1}); }, {x});
}

BOOST_AUTO_TEST_CASE(softmax_and_log_softmax_have_exact_gradients_along_every_axis) {
  for (const int axis : {0, 1, -1}) {
    check([=](const auto& v) { return softmax(v[0], axis); }, {normal({3, 2, 21}, "x")});
    check([=](const auto& v) { return log_softmax(v[0], axis); }, {normal({3, 2, 21}, "x")});
  }
}

BOOST_AUTO_TEST_CASE(losses_have_exact_gradients_with_ignored_and_weighted_rows) {
  const auto labels = tensor<std::int64_t>::from({1, -100, 0, 2}, {4});
  const std::vector<float> weights{1, 1, 0.5F, 0};
  check([&](const auto& v) { return cross_entropy(v[0], labels).sum; }, {normal({4, 5}, "x")});
  check(
      [&](const auto& v) {
        return cross_entropy(v[0], labels, {.row_weights = weights}).sum * 0.3;
      },
      {normal({4, 5}, "x")});
  check([&](const auto& v) { return mse(v[0], v[1]).sum; },
        {normal({4, 3}, "x"), normal({4, 3}, "y")});
  check([&](const auto& v) { return mse(v[0], v[1], weights).sum; },
        {normal({4, 3}, "x"), normal({4, 3}, "y")});
}

BOOST_AUTO_TEST_CASE(layer_norm_has_exact_gradients) {
  check([](const auto& v) { return layer_norm(v[0], v[1], v[2]); },
        {normal({2, 3, 21}, "x"), normal({21}, "scale"), normal({21}, "shift")});
}

BOOST_AUTO_TEST_CASE(embedding_has_exact_gradients_with_repeated_rows_and_beside_a_dense_use) {
  const auto indices = tensor<int>::from({1, 3, 1, 0}, {2, 2});
  check([&](const auto& v) { return embedding(v[0], indices); }, {normal({5, 3}, "table")});
  check([&](const auto& v) { return matmul(embedding(v[0], indices), transpose(v[0])); },
        {normal({5, 3}, "table")});
  check([&](const auto& v) { return embedding(v[0] * 2.0, indices); }, {normal({5, 3}, "table")});
}

BOOST_AUTO_TEST_CASE(dropout_has_exact_gradients) {
  check([](const auto& v) { return dropout(v[0], 0.4, random_stream(1, "d")); },
        {normal({100}, "x")});
}

BOOST_AUTO_TEST_CASE(
    convolutions_have_exact_gradients_for_strides_paddings_dilations_groups_and_activations) {
  const auto conv = [](conv2d_options options) {
    return [=](const auto& v) { return conv2d(v[0], v[1], v[2], options); };
  };
  check(conv({}), {normal({3, 2, 5, 6}, "x"), normal({4, 2, 3, 2}, "w"), normal({4}, "b")});
  check(conv({.stride = 2, .padding = 1}),
        {normal({3, 2, 5, 6}, "x"), normal({4, 2, 3, 3}, "w"), normal({4}, "b")});
  check(conv({.stride = 3, .padding = 2}),
        {normal({2, 1, 7, 6}, "x"), normal({2, 1, 2, 4}, "w"), normal({2}, "b")});
  check([](const auto& v) { return conv2d(v[0], v[1]); },
        {normal({3, 2, 5, 6}, "x"), normal({4, 2, 1, 1}, "w")});
  check(conv({.padding = 3, .dilation = 2, .activation = activation::gelu}),
        {normal({2, 2, 5, 6}, "x"), normal({4, 2, 3, 2}, "w"), normal({4}, "b")});
  check(conv({.stride = 2, .padding = 1, .groups = 2, .activation = activation::silu}),
        {normal({2, 4, 5, 6}, "x"), normal({6, 2, 3, 3}, "w"), normal({6}, "b")});
  check(conv({.padding = 1, .groups = 3, .activation = activation::relu}),
        {normal({2, 3, 5, 6}, "x"), normal({3, 1, 3, 3}, "w"), normal({3}, "b")});
  // More padding than kernel, hence unrolled.
  check(conv({.padding = 2}),
        {normal({2, 2, 4, 3}, "x"), normal({2, 2, 2, 2}, "w"), normal({2}, "b")});
  // The image's gradient gets another contribution before.
  check([](const auto& v) { return conv2d(v[0], v[1], {}, {.padding = 1}) + v[0]; },
        {normal({1, 2, 5, 6}, "x"), normal({2, 2, 3, 3}, "w")});
  check([](const auto& v) { return conv2d(v[0], v[1], {}, {.padding = 1}); },
        {normal({2, 1, 18, 19}, "x"), normal({2, 1, 3, 3}, "w")});
}

BOOST_AUTO_TEST_CASE(max_pooling_has_exact_gradients) {
  check([](const auto& v) { return max_pool2d(v[0]); }, {normal({2, 2, 5, 6}, "x")});
  check([](const auto& v) { return max_pool2d(v[0]) + max_pool2d(v[0] * 2.0); },
        {normal({1, 2, 5, 7}, "x")});
  check([](const auto& v) { return sum(max_pool2d(v[0])) + sum(v[0]); },
        {normal({1, 1, 3, 5}, "x")});
  check([](const auto& v) { return max_pool2d(v[0], {.size = 3, .stride = 2, .padding = 1}); },
        {normal({2, 2, 5, 6}, "x")});
}

BOOST_AUTO_TEST_CASE(batch_norm_has_exact_gradients_in_training_and_in_evaluation) {
  const std::vector<tensor<double>> inputs{normal({4, 3, 5}, "x"), normal({3}, "w"),
                                           normal({3}, "b")};
  check(
      [](const auto& v) { return batch_norm(v[0], v[1], v[2], statistics_of_batch(v[0].value())); },
      inputs);
  const batch_statistics known{normal({3}, "mean"), tensor<double>::full({3}, 2.0)};
  check([&](const auto& v) { return batch_norm_with(v[0], v[1], v[2], known); }, inputs);
}

BOOST_AUTO_TEST_CASE(average_pooling_has_exact_gradients) {
  const auto x = normal({2, 2, 5, 7}, "x");
  check([](const auto& v) { return avg_pool2d(v[0]); }, {x});
  check([](const auto& v) { return avg_pool2d(v[0], {.size = 3, .stride = 2, .padding = 1}); },
        {x});
  check([](const auto& v) { return adaptive_avg_pool2d(v[0]); }, {x});
  check([](const auto& v) { return adaptive_avg_pool2d(v[0], 2, 3); }, {x});
}
