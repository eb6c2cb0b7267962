// Models that compute their activations again in backward.
#include <parx/models.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <parx/nn/loss.hpp>
#include <parx/tensor/pool.hpp>

using namespace parx;

namespace {

constexpr std::size_t batch = 4, length = 24, layers = 6;

tensor<std::int64_t> tokens(int salt) {
  auto ids = tensor<std::int64_t>::empty({batch, length});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids.data()[i] = static_cast<std::int64_t>((i * i * 13 + i * 7) % 50) * (salt + 1) % 50;
  }
  return ids;
}

struct pass {
  std::vector<float> gradients;
  std::size_t peak = 0;  ///< bytes above what was there before
};

/// Two passes that add up, so that the masks of dropout differ from one to the next.
template <typename Model, typename Loss>
pass passes(bool recomputes, Model model, Loss loss_of) {
  model.initialize(3);
  if (recomputes) model.gradient_checkpointing_enable();
  loss_of(model).backward();
  auto& pool = memory_pool::instance();
  const std::size_t before = pool.stats().live_bytes;
  pool.reset_peak();
  loss_of(model).backward();
  pass made{.gradients = {}, .peak = pool.stats().peak_bytes - before};
  model.for_each_parameter([&](const std::string&, auto& p) {
    const auto grad = p.grad();
    made.gradients.insert(made.gradients.end(), grad.begin(), grad.end());
  });
  return made;
}

template <typename Make, typename Loss>
void compare(const std::string& name, Make make, Loss loss_of) {
  const pass plain = passes(false, make(), loss_of), again = passes(true, make(), loss_of);
  BOOST_TEST((again.gradients == plain.gradients), name);
  BOOST_TEST(again.peak * 2 < plain.peak,
             name << ": " << again.peak << " bytes at the peak, " << plain.peak << " without");
  auto model = make();
  model.gradient_checkpointing_enable();
  model.gradient_checkpointing_disable();
  BOOST_TEST(passes(false, std::move(model), loss_of).peak == plain.peak, name);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_has_the_same_gradients_in_less_memory) {
  const auto mask = key_mask_of(std::vector<std::size_t>{24, 3, 17, 8}, length);
  const auto ids = tokens(0), labels = tokens(1);
  compare("bert", [] {
    return models::bert_classifier<float>({.vocab_size = 50,
                                           .hidden_size = 32,
                                           .num_hidden_layers = layers,
                                           .intermediate_size = 64,
                                           .max_position_embeddings = 24});
  }, [&](auto& model) {
    return cross_entropy(model(ids, mask), tensor<std::int64_t>::from({0, 3, 1, 2}, {4}));
  });
  compare("gpt", [] {
    return models::gpt<float>({.vocab_size = 50, .n_positions = 24, .n_embd = 32,
                               .n_layer = layers, .n_head = 2});
  }, [&](auto& model) { return cross_entropy(model(ids), labels); });
  compare("llama", [] {
    return models::llama<float>({.vocab_size = 50,
                                 .hidden_size = 32,
                                 .intermediate_size = 64,
                                 .num_hidden_layers = layers,
                                 .num_attention_heads = 4,
                                 .num_key_value_heads = 2,
                                 .max_position_embeddings = 24});
  }, [&](auto& model) { return cross_entropy(model(ids), labels); });
  compare("encoder_decoder", [] {
    return models::encoder_decoder<float>({.vocab_size = 50,
                                           .d_model = 32,
                                           .encoder_layers = layers,
                                           .decoder_layers = layers,
                                           .attention_heads = 2,
                                           .ffn_dim = 64,
                                           .max_position_embeddings = 24});
  }, [&](auto& model) { return cross_entropy(model(ids, mask, labels), labels); });
}
