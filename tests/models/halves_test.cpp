// Models whose backward runs in two halves get the bits of a whole one, wherever the border is.
#include <parx/models.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <parx/autograd.hpp>
#include <parx/nn/loss.hpp>

using namespace parx;

namespace {

constexpr std::size_t batch = 3, length = 8, layers = 2;

tensor<std::int64_t> tokens(int salt) {
  auto ids = tensor<std::int64_t>::empty({batch, length});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids.data()[i] = static_cast<std::int64_t>((i * i * 13 + i * 7) % 20) * (salt + 1) % 20;
  }
  return ids;
}

enum class how { whole, halves };
enum class activations { kept, recomputed };

/// Two backwards that add up. A model starts from token ids: instead of a stage's input, the
/// parameter `border` is what the first half is about, and what is above it the stage.
template <typename Model, typename Loss>
std::vector<std::vector<float>> gradients(how way, activations mode, Model model, Loss loss_of,
                                          const std::string& border) {
  model.initialize(3);
  if (mode == activations::recomputed) model.gradient_checkpointing_enable();
  model.for_each_parameter([&](const std::string& path, auto& p) {
    if (path == border) p.node()->leads_to_border = true;
  });
  for (int i = 0; i < 2; ++i) {
    const auto loss = loss_of(model);
    if (way == how::whole) {
      loss.backward();
      continue;
    }
    auto rest = loss.backward_inputs();
    if (i == 0) {
      model.for_each_parameter([&](const std::string& path, auto& p) {
        BOOST_TEST(p.has_grad() == (path == border), path);
      });
    }
    rest.weights();
  }
  std::vector<std::vector<float>> all;
  model.for_each_parameter([&](const std::string&, auto& p) {
    const auto grad = p.grad();
    all.emplace_back(grad.begin(), grad.end());
  });
  return all;
}

template <typename Make, typename Loss>
void compare(const std::string& name, Make make, Loss loss_of,
             const std::vector<std::string>& borders) {
  const auto expected = gradients(how::whole, activations::kept, make(), loss_of, "");
  for (const std::string& border : borders) {
    for (const auto mode : {activations::kept, activations::recomputed}) {
      const auto found = gradients(how::halves, mode, make(), loss_of, border);
      BOOST_TEST((found == expected), name << " above " << border);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(models_in_halves_get_the_bits_of_a_whole_backward) {
  const auto mask = key_mask_of(std::vector<std::size_t>{8, 3, 6}, length);
  const auto ids = tokens(0), labels = tokens(1);
  compare("bert", [] {
    return models::bert_classifier<float>({.vocab_size = 20,
                                           .hidden_size = 16,
                                           .num_hidden_layers = layers,
                                           .num_attention_heads = 2,
                                           .intermediate_size = 32,
                                           .max_position_embeddings = length});
  }, [&](auto& model) {
    return cross_entropy(model(ids, mask), tensor<std::int64_t>::from({0, 1, 1}, {batch}));
  }, {"bert.embeddings.position_embeddings.weight",
      "bert.encoder.layer.0.attention.self.key.weight", ""});
  compare("gpt", [] {
    return models::gpt<float>({.vocab_size = 20, .n_positions = length, .n_embd = 16,
                               .n_layer = layers, .n_head = 2});
  }, [&](auto& model) { return cross_entropy(model(ids), labels); },
     {"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.attn.c_attn.weight"});
  compare("llama", [] {
    return models::llama<float>({.vocab_size = 20,
                                 .hidden_size = 16,
                                 .intermediate_size = 32,
                                 .num_hidden_layers = layers,
                                 .num_attention_heads = 4,
                                 .num_key_value_heads = 2,
                                 .max_position_embeddings = length});
  }, [&](auto& model) { return cross_entropy(model(ids), labels); },
     {"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight"});
  for (const auto copying : {models::copying::none, models::copying::pointer}) {
    compare("encoder_decoder", [&] {
      return models::encoder_decoder<float>({.vocab_size = 20,
                                             .d_model = 16,
                                             .encoder_layers = layers,
                                             .decoder_layers = layers,
                                             .attention_heads = 2,
                                             .ffn_dim = 32,
                                             .max_position_embeddings = length,
                                             .copying = copying});
    }, [&](auto& model) { return cross_entropy(model(ids, mask, labels), labels); },
       // The encoder's end leads to the decoder's second attention by keys and values alone.
       {"shared.weight", "encoder.layers.1.linear2.weight",
        "decoder.layers.0.self_attn.in_proj_weight"});
  }
}

BOOST_AUTO_TEST_CASE(a_cnn_with_batch_norm_gets_the_bits_of_a_whole_backward) {
  const auto train = [](how way) {
    models::cnn<float> model({.image_rows = 8, .image_columns = 8, .hidden_channels = 4,
                              .hidden_size = 16});
    model.initialize(3);
    std::vector<std::vector<float>> all;
    for (int i = 0; i < 2; ++i) {
      const border<float> images(tensor<float>::empty({6, 1, 8, 8}));
      random_stream(2, "images" + std::to_string(i)).normal(images.value(), 0.0F, 1.0F);
      const auto loss = cross_entropy(model(images), tensor<int>::from({0, 1, 2, 3, 4, 5}, {6}));
      if (way == how::whole) {
        loss.backward();
      } else {
        auto rest = loss.backward_inputs();
        if (i == 0) {
          model.for_each_parameter(
              [](const std::string& path, auto& p) { BOOST_TEST(!p.has_grad(), path); });
        }
        rest.weights();
      }
      const auto sum = images.gradient().sum;
      all.emplace_back(sum.begin(), sum.end());
    }
    model.for_each_parameter([&](const std::string&, auto& p) {
      const auto grad = p.grad();
      all.emplace_back(grad.begin(), grad.end());
    });
    return all;
  };
  BOOST_TEST((train(how::halves) == train(how::whole)));
}
