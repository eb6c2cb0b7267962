// The models, weights and batches of torch_models.py on this side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nn/torch_oracle.hpp>

#include <parx/autograd/ops/attention.hpp>
#include <parx/autograd/ops/loss.hpp>
#include <parx/models.hpp>

namespace torch_models {

using parx::tensor;

/// What torch_models.py says, once.
inline const std::optional<parx_test::oracle_numbers>& numbers() {
  static const auto said = parx_test::ask_torch(__FILE__, "torch_models.py");
  return said;
}

/// Also of a model of which parts are here.
template <typename Model>
void set_weights(Model& model) {
  model.initialize(0);
  model.for_each_parameter([](const std::string& path, auto& p) {
    std::size_t k = 0;
    for (std::size_t j = 0; j < path.size(); ++j) {
      k = (k + (j + 1) * static_cast<unsigned char>(path[j])) % 1000;
    }
    const bool flat = p.rank() == 1;
    const double shift = flat && path.ends_with("weight") ? 1.0 : 0.0;
    p.spec().for_each_run([&](const parx::shard_run& run) {
      for (std::size_t i = 0; i < run.length; ++i) {
        const auto at = (run.global + i) * 7919 + k * 104729;
        const double value = static_cast<double>(at % 1009) / 1009 - 0.5;
        p.value().data()[run.local + i] = static_cast<float>(value * (flat ? 0.1 : 0.2) + shift);
      }
    });
  });
}
inline tensor<std::int64_t> tokens(std::size_t step, std::size_t batch, std::size_t length,
                                   std::size_t vocabulary) {
  auto ids = tensor<std::int64_t>::empty({batch, length});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids.data()[i] = static_cast<std::int64_t>((i * i * 13 + i * 7 + step % 4 * 101) % vocabulary);
  }
  return ids;
}

inline auto bert() {
  return parx::models::bert_classifier<float>({.vocab_size = 100,
                                               .hidden_size = 16,
                                               .intermediate_size = 32,
                                               .max_position_embeddings = 20,
                                               .hidden_dropout_prob = 0,
                                               .attention_probs_dropout_prob = 0});
}
inline auto gpt() {
  return parx::models::gpt<float>({.vocab_size = 50,
                                   .n_positions = 20,
                                   .n_embd = 16,
                                   .n_layer = 2,
                                   .n_head = 2,
                                   .embd_pdrop = 0,
                                   .attn_pdrop = 0,
                                   .resid_pdrop = 0});
}
inline auto llama() {
  return parx::models::llama<float>({.vocab_size = 50,
                                     .hidden_size = 16,
                                     .intermediate_size = 24,
                                     .num_hidden_layers = 2,
                                     .num_attention_heads = 4,
                                     .num_key_value_heads = 2,
                                     .max_position_embeddings = 20});
}
inline auto encoder_decoder() {
  return parx::models::encoder_decoder<float>({.vocab_size = 40,
                                               .d_model = 16,
                                               .attention_heads = 2,
                                               .ffn_dim = 32,
                                               .max_position_embeddings = 20,
                                               .dropout = 0});
}

/// The loss of a step: criterion(logits, labels, options).
template <typename Criterion>
auto loss(parx::models::bert_classifier<float>& model, std::size_t step, Criterion criterion) {
  const auto mask = parx::key_mask_of(std::vector<std::size_t>{12, 5, 1, 9}, 12);
  return criterion(model(tokens(step, 4, 12, 100), mask),
                   tensor<std::int64_t>::from({0, 3, 1, 2}, {4}), parx::cross_entropy_options{});
}
/// Of a gpt or llama.
template <typename Model, typename Criterion>
auto loss(Model& model, std::size_t step, Criterion criterion) {
  const auto ids = tokens(step, 3, 13, 50);
  return criterion(model(ids.slice(1, 0, 12)), ids.slice(1, 1, 13), parx::cross_entropy_options{});
}
template <typename Criterion>
auto loss(parx::models::encoder_decoder<float>& model, std::size_t step, Criterion criterion) {
  const auto target = tokens(step + 1, 3, 8, 40);
  const auto mask = parx::key_mask_of(std::vector<std::size_t>{10, 4, 7}, 10);
  return criterion(
      model(tokens(step, 3, 10, 40), mask, target.slice(1, 0, 7)),
      target.slice(1, 1, 8), parx::cross_entropy_options{.label_smoothing = 0.1});
}

}  // namespace torch_models
