#include <parx/models.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <models/torch_models.hpp>

#include <parx/autograd/ops/loss.hpp>
#include <parx/nn/activation.hpp>
#include <parx/nn/sequential.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/optim/sgd.hpp>

using namespace parx;

namespace {

tensor<float> images(std::size_t step, shape of) {
  auto pixels = tensor<float>::empty(of);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const auto level = static_cast<double>((i * i * 13 + i * 7 + step % 4 * 101) % 97);
    pixels.data()[i] = static_cast<float>(level / 97 - 0.4);
  }
  return pixels;
}
tensor<std::int64_t> labels(std::size_t step, std::size_t count) {
  auto classes = tensor<std::int64_t>::empty({count});
  for (std::size_t i = 0; i < count; ++i) {
    classes.data()[i] = static_cast<std::int64_t>((i * 3 + step % 4) % 10);
  }
  return classes;
}

/// Whether a loss is torch's to 1e-4.
void compare_with_torch(double found, double expected, const std::string& which) {
  BOOST_TEST(std::abs(found - expected) <= 1e-4 * expected,
             which << ": " << found << " and torch's " << expected);
}

/// 20 steps of `optimizer` give torch's losses. `loss_of(model, step)` is a weighted loss.
template <typename Model, typename Optimizer, typename Loss>
void train_like_torch(const std::string& name, Model& model, Optimizer optimizer, Loss loss_of) {
  BOOST_TEST(static_cast<double>(model.parameter_count()) ==
             torch_models::numbers()->at(name + ".parameters").at(0));
  const std::vector<double>& expected = torch_models::numbers()->at(name + ".loss");
  BOOST_REQUIRE(expected.size() == 20);
  for (std::size_t step = 0; step < expected.size(); ++step) {
    model.zero_grad();
    const auto loss = loss_of(model, step);
    loss.backward();
    optimizer.step();
    compare_with_torch(static_cast<double>(loss.mean()), expected[step],
                       name + ", step " + std::to_string(step));
  }
}
template <typename Model, typename Loss>
void train_like_torch(const std::string& name, Model model, Loss loss_of) {
  if (!torch_models::numbers()) return;
  torch_models::set_weights(model);
  train_like_torch(name, model, optim::adamw<float>(model.parameters(), {.lr = 1e-3}), loss_of);
}
template <typename Model>
optim::sgd<float> sgd_of(Model& model) {
  torch_models::set_weights(model);
  return optim::sgd<float>(model.parameters(), {.lr = 0.05, .momentum = 0.9});
}

template <typename Model>
std::vector<std::string> names_of(Model model) {
  std::vector<std::string> names;
  model.for_each_parameter([&](const std::string& path, auto&) { names.push_back(path); });
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

namespace {

const auto criterion = [](const auto& logits, const auto& labels, const auto& options) {
  return cross_entropy(logits, labels, options);
};
const auto loss_of_step = [](auto& model, std::size_t step) {
  return torch_models::loss(model, step, criterion);
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_bert_trains_as_in_pytorch) {
  train_like_torch("bert", torch_models::bert(), loss_of_step);
}

BOOST_AUTO_TEST_CASE(a_gpt_trains_as_in_pytorch) {
  train_like_torch("gpt", torch_models::gpt(), loss_of_step);
}

BOOST_AUTO_TEST_CASE(a_llama_trains_as_in_pytorch) {
  train_like_torch("llama", torch_models::llama(), loss_of_step);
}

BOOST_AUTO_TEST_CASE(an_encoder_decoder_trains_as_in_pytorch) {
  train_like_torch("encoder_decoder", torch_models::encoder_decoder(), loss_of_step);
}

BOOST_AUTO_TEST_CASE(a_cnn_trains_and_then_evaluates_as_in_pytorch) {
  if (!torch_models::numbers()) return;
  models::cnn<float> model({.image_channels = 2,
                            .image_rows = 13,
                            .image_columns = 12,
                            .hidden_channels = 4,
                            .hidden_size = 16,
                            .classifier_dropout = 0});
  const auto loss_of = [](auto& net, std::size_t step) {
    return cross_entropy(net(images(step, {6, 2, 13, 12})), labels(step, 6));
  };
  train_like_torch("cnn", model, sgd_of(model), loss_of);
  model.eval();
  compare_with_torch(static_cast<double>(loss_of(model, 0).mean()),
                     torch_models::numbers()->at("cnn.evaluated").at(0),
                     "by the running statistics");
}

BOOST_AUTO_TEST_CASE(a_cnn_without_norm_has_the_same_layers_but_those) {
  models::cnn<float> model({.norm = models::cnn_norm::none});
  BOOST_TEST(names_of(std::move(model)).size() == 8U);
  models::cnn<float> small({.image_rows = 8, .image_columns = 8});
  BOOST_CHECK_EXCEPTION((void)small(images(0, {2, 1, 8, 9})), usage_error, [](const auto& error) {
    return std::string(error.what()).find("(2, 1, 8, 9) are not (n, 1, 8, 8)") != std::string::npos;
  });
  BOOST_CHECK_THROW(models::cnn<float>({.image_rows = 3}), usage_error);
}

BOOST_AUTO_TEST_CASE(an_mlp_trains_as_in_pytorch) {
  if (!torch_models::numbers()) return;
  nn::sequential model{nn::linear{20, 16}, nn::relu{}, nn::linear{16, 16}, nn::relu{},
                       nn::linear{16, 10}};
  train_like_torch("mlp", model, sgd_of(model), [](auto& net, std::size_t step) {
    return cross_entropy(net(images(step, {6, 20})), labels(step, 6));
  });
}

BOOST_AUTO_TEST_CASE(parameters_are_called_as_in_hugging_faces_models) {
  const std::vector<std::string> bert{"bert.embeddings.LayerNorm.bias",
                                      "bert.embeddings.LayerNorm.weight",
                                      "bert.embeddings.position_embeddings.weight",
                                      "bert.embeddings.token_type_embeddings.weight",
                                      "bert.embeddings.word_embeddings.weight",
                                      "bert.encoder.layer.0.attention.output.LayerNorm.bias",
                                      "bert.encoder.layer.0.attention.output.LayerNorm.weight",
                                      "bert.encoder.layer.0.attention.output.dense.bias",
                                      "bert.encoder.layer.0.attention.output.dense.weight",
                                      "bert.encoder.layer.0.attention.self.key.bias",
                                      "bert.encoder.layer.0.attention.self.key.weight",
                                      "bert.encoder.layer.0.attention.self.query.bias",
                                      "bert.encoder.layer.0.attention.self.query.weight",
                                      "bert.encoder.layer.0.attention.self.value.bias",
                                      "bert.encoder.layer.0.attention.self.value.weight",
                                      "bert.encoder.layer.0.intermediate.dense.bias",
                                      "bert.encoder.layer.0.intermediate.dense.weight",
                                      "bert.encoder.layer.0.output.LayerNorm.bias",
                                      "bert.encoder.layer.0.output.LayerNorm.weight",
                                      "bert.encoder.layer.0.output.dense.bias",
                                      "bert.encoder.layer.0.output.dense.weight",
                                      "bert.pooler.dense.bias",
                                      "bert.pooler.dense.weight",
                                      "classifier.bias",
                                      "classifier.weight"};
  BOOST_TEST(names_of(models::bert_classifier<float>({.num_hidden_layers = 1})) == bert,
             boost::test_tools::per_element());
  // The labs' model: 30522 words, 256 positions and 2 types of 64, two layers, pooler, classifier.
  BOOST_TEST(models::bert_classifier<float>().parameter_count() ==
             (30522U + 256 + 2 + 2) * 64 +
                 2 * (4 * (64 * 64 + 64) + 2 * 64 * 256 + 256 + 64 + 256) + 64 * 64 + 64 + 4 * 64 +
                 4);
}

BOOST_AUTO_TEST_CASE(dropout_changes_a_bert_in_training_alone) {
  models::bert_classifier<float> model({.vocab_size = 100, .hidden_size = 16});
  model.initialize(3);
  const auto ids = torch_models::tokens(0, 2, 5, 100);
  const auto first = model(ids).value(), second = model(ids).value();
  BOOST_TEST(!std::equal(first.begin(), first.end(), second.begin()));
  model.eval();
  const auto third = model(ids).value(), fourth = model(ids).value();
  BOOST_TEST(std::equal(third.begin(), third.end(), fourth.begin()));
}

namespace {
/// All gradients after a pass over no rows are zero.
template <typename Model, typename Call>
void check_no_rows(Model model, Call call, const shape& expected) {
  model.initialize(1);
  const variable<float> logits = call(model);
  BOOST_TEST((logits.shape() == expected), to_string(logits.shape()));
  const auto targets =
      tensor<std::int64_t>::zeros(logits.rank() == 2 ? shape{0} : shape{0, expected[1]});
  const auto loss = cross_entropy(logits, targets);
  BOOST_TEST(loss.count == 0);
  loss.backward();
  model.for_each_parameter([](const std::string& name, auto& p) {
    const tensor<float> gradient = p.grad();
    BOOST_TEST((!gradient.defined() || std::all_of(gradient.begin(), gradient.end(),
                                                   [](float g) { return g == 0; })),
               name);
  });
}
}  // namespace

// So that a rank without samples takes part in a step.
BOOST_AUTO_TEST_CASE(a_batch_without_rows_gives_no_logits_and_no_gradient) {
  const auto none = tensor<std::int64_t>::zeros({0, 5});
  const auto seen = tensor<std::uint8_t>::ones({0, 5});
  check_no_rows(models::bert_classifier<float>({.vocab_size = 20, .hidden_size = 16}),
                [&](auto& net) { return net(none, seen); }, {0, 4});
  check_no_rows(models::gpt<float>({.vocab_size = 20, .n_positions = 8, .n_embd = 8, .n_layer = 1,
                                    .n_head = 2}),
                [&](auto& net) { return net(none); }, {0, 5, 20});
  check_no_rows(models::llama<float>({.vocab_size = 20, .hidden_size = 8, .intermediate_size = 16,
                                      .num_hidden_layers = 1, .num_attention_heads = 2,
                                      .num_key_value_heads = 1, .max_position_embeddings = 8}),
                [&](auto& net) { return net(none); }, {0, 5, 20});
  check_no_rows(models::encoder_decoder<float>({.vocab_size = 20, .d_model = 8, .encoder_layers = 1,
                                                .decoder_layers = 1, .attention_heads = 2,
                                                .ffn_dim = 8, .max_position_embeddings = 8,
                                                .copying = models::copying::pointer}),
                [&](auto& net) { return net(none, seen, none); }, {0, 5, 20});
  check_no_rows(models::cnn<float>({.norm = models::cnn_norm::none}),
                [&](auto& net) { return net(tensor<float>::zeros({0, 1, 28, 28})); }, {0, 10});
}

namespace {
template <typename Model>
void check_decay(const std::string& name, Model net) {
  net.for_each_parameter([&](const std::string& path, auto& each) {
    const bool is_matrix = each.shape().rank() > 1;
    BOOST_TEST(optim::is_meant_to_decay(each) == is_matrix, name << ": " << path);
  });
}
}  // namespace

// All their vectors are biases, or those of norms: GPT's ln_1 and ln_f, too.
BOOST_AUTO_TEST_CASE(weight_decay_is_meant_for_the_matrices_of_every_model_and_for_no_vector) {
  check_decay("bert", models::bert_classifier<float>({.vocab_size = 20, .hidden_size = 16}));
  check_decay("gpt", models::gpt<float>({.vocab_size = 20}));
  check_decay("llama", models::llama<float>({.vocab_size = 20}));
  check_decay("encoder_decoder", models::encoder_decoder<float>({.vocab_size = 20}));
  check_decay("cnn", models::cnn<float>());
  check_decay("mha", nn::sequential{nn::multi_head_attention<float>{8, 2}});
}
