#include <parx/plan/work.hpp>

#include <cstdint>
#include <string>
#include <utility>

#include <boost/test/unit_test.hpp>

#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>
#include <parx/nn/loss.hpp>
#include <parx/tensor/pool.hpp>

using namespace parx;

namespace {

constexpr std::size_t width = 128, positions = 64, batch = 4, vocabulary = 512;

/// The most that a step holds beside values and gradients, which are there before it begins.
template <typename Model>
double measured(Model model) {
  model.initialize(1);
  const auto ids = tensor<std::int64_t>::zeros({batch, positions});
  const auto pass = [&] { nn::cross_entropy(model(ids), ids).backward(); };
  pass();
  memory_pool& pool = memory_pool::instance();
  const std::size_t before = pool.stats().live_bytes;
  pool.reset_peak();
  pass();
  return static_cast<double>(pool.stats().peak_bytes - before);
}

double predicted(std::size_t layers, feed_forward form, activations kept) {
  return static_cast<double>(work_of({.layers = layers, .width = width, .inner = 4 * width,
                                      .vocabulary = vocabulary, .batch = batch,
                                      .positions = positions, .form = form, .kept = kept})
                                 .activation_bytes);
}

models::gpt<> gpt(std::size_t layers) {
  return models::gpt<>{{.vocab_size = vocabulary, .n_positions = positions, .n_embd = width,
                        .n_layer = layers, .embd_pdrop = 0, .attn_pdrop = 0, .resid_pdrop = 0}};
}
models::llama<> llama(std::size_t layers) {
  return models::llama<>{{.vocab_size = vocabulary, .hidden_size = width,
                          .intermediate_size = 4 * width, .num_hidden_layers = layers,
                          .max_position_embeddings = positions}};
}

void compare(const std::string& what, double formula, double counted) {
  BOOST_TEST_MESSAGE(what << ": formula " << formula << ", counted " << counted << ", ratio "
                          << formula / counted);
  BOOST_TEST(formula / counted > 0.85, what);
  BOOST_TEST(formula / counted < 1.15, what);
}

}  // namespace

BOOST_AUTO_TEST_CASE(activations_by_formula_are_what_the_pool_counts) {
  for (const std::size_t layers : {1U, 2U, 6U}) {
    compare("gpt", predicted(layers, feed_forward::plain, activations::kept),
            measured(gpt(layers)));
    compare("llama", predicted(layers, feed_forward::gated, activations::kept),
            measured(llama(layers)));
    auto again = gpt(layers);
    again.gradient_checkpointing_enable();
    compare("gpt computed again",
            predicted(layers, feed_forward::plain, activations::computed_again),
            measured(std::move(again)));
  }
}

BOOST_AUTO_TEST_CASE(operations_of_a_known_model) {
  // GPT-2 small, 1024 positions: 12 layers x (24 h^2 + 2 s h) + 2 h V operations a token, by hand.
  const auto work = work_of({.layers = 12, .width = 768, .inner = 3072, .vocabulary = 50257,
                             .batch = 1, .positions = 1024});
  const double token = 12 * (14'155'776.0 + 1'572'864.0) + 77'194'752.0;
  BOOST_TEST(work.forward_flops == 1024 * token);
  BOOST_TEST(work.backward_flops == 2 * 1024 * token);
}
