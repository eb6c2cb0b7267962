#include <parx/nn/transformer.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nn/torch_values.hpp>

#include <parx/autograd/ops/loss.hpp>
#include <parx/autograd/ops/reduce.hpp>
#include <parx/nn/position.hpp>

using namespace parx;
using parx_test::grid;

namespace {

const std::optional<parx_test::oracle_numbers>& torch_numbers() {
  static const auto numbers = parx_test::ask_torch(__FILE__, "torch_transformer.py");
  return numbers;
}

void check_close(const std::string& name, std::span<const float> found) {
  parx_test::check_close(*torch_numbers(), name, found, 1e-5);
}

/// Output and all gradients under torch's names; `call` applies the model to the inputs.
template <typename Model, typename Call>
void compare_with_torch(const std::string& name, Model model, std::vector<tensor<float>> inputs,
                        Call call) {
  if (!torch_numbers()) return;
  model.initialize(0);
  std::size_t k = 1;
  model.for_each_parameter([&](const std::string& path, auto& p) {
    const float more = path.find("norm") == std::string::npos ? 0.0F : 1.0F;
    p.value().copy_from(map([=](float v) { return v + more; }, grid(k++, p.shape())));
  });
  std::vector<variable<float>> x;
  for (const auto& input : inputs) x.emplace_back(input, gradient::wanted);
  const auto y = call(model, x);
  sum(y * variable<float>(grid(9, y.shape()))).backward();
  check_close(name + ".y", y.value().span());
  for (std::size_t i = 0; i < x.size(); ++i)
    check_close(name + ".dx" + std::to_string(i), x[i].grad().span());
  model.for_each_parameter(
      [&](const std::string& path, auto& p) { check_close(name + "." + path, p.grad().span()); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(transformer_layers_and_their_gradients_are_pytorchs) {
  const auto x = grid(0, {2, 5, 8}), memory = grid(5, {2, 7, 8});
  const attention_options<float> causal{.causal = true};
  const attention_options<float> padding{.key_mask =
                                             key_mask_of(std::vector<std::size_t>{5, 3}, 5)};
  const attention_options<float> memory_padding{.key_mask =
                                                    key_mask_of(std::vector<std::size_t>{4, 7}, 7)};
  compare_with_torch("mha", nn::multi_head_attention<float>{8, 2}, {x},
                     [&](auto& m, auto& in) { return m(in[0], causal); });
  compare_with_torch("cross", nn::multi_head_attention<float>{8, 4, {.bias = nn::bias::none}},
                     {x, memory},
                     [&](auto& m, auto& in) { return m(in[0], in[1], in[1], memory_padding); });
  for (const auto& [order, name] :
       {std::pair{nn::norm_order::post, "post"}, std::pair{nn::norm_order::pre, "pre"}}) {
    nn::transformer_layer_options options{.feed_forward = 12, .dropout = 0, .order = order};
    compare_with_torch("encoder_" + std::string(name),
                       nn::transformer_encoder_layer<float>{8, 2, options}, {x},
                       [&](auto& m, auto& in) { return m(in[0], padding); });
    options.activation = activation::gelu;
    compare_with_torch("decoder_" + std::string(name),
                       nn::transformer_decoder_layer<float>{8, 2, options}, {x, memory},
                       [&](auto& m, auto& in) { return m(in[0], in[1], causal, memory_padding); });
  }
  compare_with_torch("encoder_stack",
                     nn::transformer_encoder<float>{
                         2, 8, 2, {.feed_forward = 12, .dropout = 0, .order = nn::norm_order::pre}},
                     {x}, [](auto& m, auto& in) { return m(in[0]); });
}

BOOST_AUTO_TEST_CASE(label_smoothing_beside_ignored_labels_is_pytorchs) {
  if (!torch_numbers()) return;
  const variable<float> logits(grid(3, {4, 5}), gradient::wanted);
  const auto loss = cross_entropy(logits, tensor<std::int64_t>::from({1, -100, 4, 0}, {4}),
                                  {.label_smoothing = 0.1});
  loss.backward();
  std::vector<float> found{loss.mean()};
  found.insert(found.end(), logits.grad().begin(), logits.grad().end());
  check_close("smoothed", found);
}

BOOST_AUTO_TEST_CASE(attention_drops_in_training_alone_and_otherwise_with_every_call) {
  nn::multi_head_attention<float> layer(8, 2, {.dropout = 0.5});
  layer.initialize(1);
  const auto x = grid(0, {1, 6, 8});
  const auto first = layer(x).value(), second = layer(x).value();
  BOOST_TEST(!std::equal(first.begin(), first.end(), second.begin()));
  layer.initialize(1);
  const auto again = layer(x).value();
  BOOST_TEST(std::equal(first.begin(), first.end(), again.begin()));
  layer.eval();
  const auto third = layer(x).value(), fourth = layer(x).value();
  BOOST_TEST(std::equal(third.begin(), third.end(), fourth.begin()));
}

BOOST_AUTO_TEST_CASE(sinusoidal_positions_are_the_papers) {
  const auto y = nn::sinusoidal_position<float>(9, 4)(tensor<float>::ones({2, 9, 4})).value();
  BOOST_TEST(y.at(1, 0, 1) == 2.0F);  // cos 0
  BOOST_TEST(y.at(1, 7, 0) == 1 + std::sin(7.0F), boost::test_tools::tolerance(1e-6F));
  BOOST_TEST(y.at(0, 7, 3) == 1 + std::cos(0.07F), boost::test_tools::tolerance(1e-6F));
}
