#include <parx/nn.hpp>

#include <cmath>

#include <boost/test/unit_test.hpp>

#include <nn/torch_values.hpp>

using namespace parx;
using parx_test::grid;

namespace {

const std::optional<parx_test::oracle_numbers>& torch_numbers() {
  static const auto numbers = parx_test::ask_torch(__FILE__, "torch_layers.py");
  return numbers;
}

void check_close(const std::string& name, std::span<const float> found) {
  parx_test::check_close(*torch_numbers(), name, found, 2e-6);
}

template <typename Model>
void set_values(Model& model) {
  model.initialize(0);
  std::size_t k = 1;
  model.for_each_parameter(
      [&](const std::string&, auto& p) { p.value().copy_from(grid(k++, p.shape())); });
}

/// Output, input gradient and parameter gradients under torch's names.
template <typename Model>
void compare_with_torch(const std::string& name, Model model, const shape& input) {
  if (!torch_numbers()) return;
  set_values(model);
  const variable<float> x(grid(0, input), gradient::wanted);
  const auto y = model(x);
  sum(y * variable<float>(grid(9, y.shape()))).backward();
  check_close(name + ".y", y.value().contiguous().span());
  check_close(name + ".dx", x.grad().span());
  model.for_each_parameter(
      [&](const std::string& path, auto& p) { check_close(name + "." + path, p.grad().span()); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(layers_and_their_gradients_are_pytorchs) {
  compare_with_torch("linear", nn::linear{5, 3}, {4, 5});
  compare_with_torch("linear_plain", nn::linear{5, 3, {.bias = nn::bias::none}}, {2, 2, 5});
  compare_with_torch("conv2d", nn::conv2d{2, 3, 3, {.padding = 1}}, {2, 2, 5, 6});
  compare_with_torch("conv2d_stride", nn::conv2d{2, 3, 2, {.stride = 2, .bias = nn::bias::none}},
                     {1, 2, 4, 6});
  compare_with_torch("conv2d_dilation", nn::conv2d{2, 3, 3, {.padding = 2, .dilation = 2}},
                     {2, 2, 5, 6});
  compare_with_torch("conv2d_groups", nn::conv2d{4, 6, 3, {.padding = 1, .groups = 2}},
                     {2, 4, 5, 6});
  compare_with_torch("conv2d_depthwise",
                     nn::conv2d{4, 4, 3, {.stride = 2, .padding = 3, .dilation = 2, .groups = 4}},
                     {2, 4, 5, 6});
  const auto fused_convolution = [](activation f) {
    return nn::sequential{nn::conv2d{2, 3, 3, {.padding = 1, .activation = f}}};
  };
  compare_with_torch("conv2d_relu", fused_convolution(activation::relu), {2, 2, 5, 6});
  compare_with_torch("conv2d_gelu", fused_convolution(activation::gelu), {2, 2, 5, 6});
  compare_with_torch("layer_norm", nn::layer_norm{6}, {3, 6});
  compare_with_torch("max_pool2d", nn::max_pool2d{2}, {1, 2, 4, 6});
  compare_with_torch("max_pool2d_odd", nn::max_pool2d{2}, {2, 3, 5, 7});
  compare_with_torch("avg_pool2d", nn::avg_pool2d{3, {.stride = 2, .padding = 1}}, {1, 2, 5, 6});
  compare_with_torch("adaptive_avg_pool2d", nn::adaptive_avg_pool2d{2, 3}, {1, 2, 5, 7});
  compare_with_torch("relu", nn::relu{}, {3, 4});
  compare_with_torch("gelu", nn::gelu{}, {3, 4});
  compare_with_torch("gelu_tanh", nn::gelu{gelu_form::tanh}, {3, 4});
  compare_with_torch("silu", nn::silu{}, {3, 4});
  const auto fused = [](activation f) {
    return nn::sequential{nn::linear{5, 3, {.activation = f}}};
  };
  compare_with_torch("linear_relu", fused(activation::relu), {4, 5});
  compare_with_torch("linear_gelu", fused(activation::gelu), {4, 5});
  compare_with_torch("linear_gelu_tanh", fused(activation::gelu_tanh), {4, 5});
  compare_with_torch("linear_silu", fused(activation::silu), {4, 5});
  compare_with_torch("tanh", nn::tanh{}, {3, 4});
  compare_with_torch("sigmoid", nn::sigmoid{}, {3, 4});
  compare_with_torch("sequential",
                     nn::sequential{nn::conv2d{1, 2, 3}, nn::relu{}, nn::max_pool2d{2},
                                    nn::flatten{}, nn::linear{8, 3}},
                     {2, 1, 6, 6});
}

BOOST_AUTO_TEST_CASE(batch_norm_of_a_batch_without_rows_changes_nothing) {
  nn::batch_norm norm{3};
  norm.initialize(1);
  const auto y = norm(variable<float>(tensor<float>::zeros({0, 3, 2})));
  BOOST_TEST((y.shape() == shape{0, 3, 2}));
  sum(y).backward();
  norm.for_each_buffer([](const std::string& path, auto& buffer) {
    const double expected = path == "running_var" ? 1 : 0;
    for (const auto each : buffer.value().span()) BOOST_TEST(static_cast<double>(each) == expected);
  });
}

BOOST_AUTO_TEST_CASE(batch_norm_its_gradients_and_its_running_statistics_are_pytorchs) {
  if (!torch_numbers()) return;
  nn::batch_norm norm{3};
  set_values(norm);
  const auto compare = [&](const std::string& name, std::size_t k) {
    norm.zero_grad();
    const variable<float> x(grid(k, {4, 3, 2, 2}), gradient::wanted);
    const auto y = norm(x);
    sum(y * variable<float>(grid(9, y.shape()))).backward();
    check_close(name + ".y", y.value().span());
    check_close(name + ".dx", x.grad().span());
    norm.for_each_parameter(
        [&](const std::string& path, auto& p) { check_close(name + "." + path, p.grad().span()); });
  };
  compare("batch_norm", 0);
  norm.for_each_buffer([&](const std::string& path, auto& b) {
    check_close("batch_norm." + path, b.value().template cast<float>().span());
  });
  norm.eval();
  compare("batch_norm_eval", 2);
}

BOOST_AUTO_TEST_CASE(embedding_and_losses_are_pytorchs) {
  if (!torch_numbers()) return;
  nn::embedding table{5, 3};
  set_values(table);
  const auto y = table(tensor<std::int64_t>::from({4, 0, 4, 2}, {2, 2}));
  sum(y * variable<float>(grid(9, y.shape()))).backward();
  check_close("embedding.y", y.value().span());
  check_close("embedding.weight", table.weight().grad().span());

  const variable<float> logits(grid(3, {4, 5}), gradient::wanted);
  const auto entropy = nn::cross_entropy(logits, tensor<std::int64_t>::from({1, -100, 4, 0}, {4}));
  entropy.backward();
  std::vector<float> found{entropy.mean()};
  found.insert(found.end(), logits.grad().begin(), logits.grad().end());
  check_close("cross_entropy", found);

  const variable<float> prediction(grid(3, {4, 5}), gradient::wanted);
  const auto squares = nn::mse_loss(prediction, grid(4, {4, 5}));
  squares.backward();
  found = {squares.mean()};
  found.insert(found.end(), prediction.grad().begin(), prediction.grad().end());
  check_close("mse", found);
}

BOOST_AUTO_TEST_CASE(a_mean_squared_error_counts_by_the_weights_of_its_rows) {
  const variable<float> prediction(tensor<float>::from({1, 2, 3, 4}, {2, 2}), gradient::wanted);
  const std::vector<float> weights{1, 0};
  const auto loss =
      nn::mse_loss(prediction, tensor<float>::zeros({2, 2}), {.row_weights = weights});
  loss.backward();
  BOOST_TEST(loss.sum.item() == 5.0F);
  BOOST_TEST(loss.count == 2.0);
  const std::vector<float> expected{1, 2, 0, 0};  // 2 (prediction - target) / count
  BOOST_TEST(prediction.grad().span() == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(layers_compute_what_one_computes_by_hand) {
  nn::linear layer{2, 2};
  layer.initialize(0);
  layer.weight().value().copy_from(tensor<float>::from({1, 2, 3, 4}, {2, 2}));
  layer.bias_values().value().copy_from(tensor<float>::from({10, 20}, {2}));
  const auto y = layer(tensor<float>::from({1, -1}, {1, 2}));
  BOOST_TEST(y.value().at(0, 0) == 9.0F);   // 1 - 2 + 10
  BOOST_TEST(y.value().at(0, 1) == 19.0F);  // 3 - 4 + 20
  nn::conv2d sum_of_window{1, 1, 2, {.bias = nn::bias::none}};
  sum_of_window.initialize(0);
  sum_of_window.weight().value().fill(1);
  const auto image = sum_of_window(tensor<float>::from({1, 2, 3, 4, 5, 6}, {1, 1, 2, 3}));
  BOOST_TEST((image.shape() == shape{1, 1, 1, 2}));
  BOOST_TEST(image.value().data()[0] == 12.0F);
  BOOST_TEST(image.value().data()[1] == 16.0F);
  nn::layer_norm norm{2};
  const auto rows = norm(tensor<float>::from({1, 3}, {1, 2}));
  BOOST_TEST(rows.value().at(0, 0) == -1.0F, boost::test_tools::tolerance(1e-4F));
  BOOST_TEST(rows.value().at(0, 1) == 1.0F, boost::test_tools::tolerance(1e-4F));
}

BOOST_AUTO_TEST_CASE(accuracy_counts_weighted_hits) {
  const auto logits = tensor<float>::from({1, 2, 5, 3, 0, 9, 4, 4.5F}, {4, 2});
  const auto labels = tensor<std::int64_t>::from({1, 1, 1, -100}, {4});
  const auto all = nn::accuracy(logits, labels);
  BOOST_TEST(all.sum == 2.0);
  BOOST_TEST(all.count == 3.0);
  const std::vector<float> weights{1, 1, 0, 1};
  auto some = nn::accuracy(variable<float>(logits), labels, {.row_weights = weights});
  BOOST_TEST(some.mean() == 0.5);
  some += all;
  BOOST_TEST(some.mean() == 0.6);
  BOOST_TEST(nn::tally{}.mean() == 0.0);
}

BOOST_AUTO_TEST_CASE(losses_of_several_batches_are_added_up_as_accuracies_are) {
  nn::tally total;
  total += nn::mse_loss(variable<float>(tensor<float>::from({1, 3}, {2, 1})),
                        tensor<float>::from({0, 0}, {2, 1}));
  total += nn::mse_loss(variable<float>(tensor<float>::from({2}, {1, 1})),
                        tensor<float>::from({0}, {1, 1}));
  BOOST_TEST(total.sum == 14.0);
  BOOST_TEST(total.count == 3.0);
}

BOOST_AUTO_TEST_CASE(a_linear_layer_that_an_input_does_not_fit_is_told_by_its_parameters_name) {
  const auto refusal = [](auto&& call) -> std::string {
    try {
      (void)call();
    } catch (const usage_error& refused) {
      return refused.what();
    }
    return "nothing was thrown";
  };
  const auto x = tensor<float>::zeros({5, 16});
  nn::sequential model{nn::linear{16, 16}, nn::relu{}, nn::linear{8, 1}};
  BOOST_TEST(refusal([&] { return model(x); }) ==
             "linear \"2.weight\": input of shape (5, 16) and weight of shape (1, 8) do not fit: "
             "the last axis of the input and the last of the weight must be equal");
  const variable<float> weight(tensor<float>::zeros({1, 8}));
  BOOST_TEST(refusal([&] { return linear(variable<float>(x), weight); }).starts_with(
      "linear: input of shape (5, 16)"));
  const variable<float> bias(tensor<float>::zeros({2}));
  BOOST_TEST(refusal([&] {
               return linear(variable<float>(tensor<float>::zeros({5, 8})), weight, bias);
             }) == "linear: a bias of shape (2) does not fit a weight of shape (1, 8)");
}
