// Small models of each kind, and batches for them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/models.hpp>
#include <parx/tensor.hpp>

namespace small_models {

using parx::tensor;
namespace models = parx::models;

inline constexpr std::size_t vocabulary = 96, length = 64;

// Sizes at which every operation is divided, and some of them unevenly.
inline tensor<std::int64_t> tokens(std::size_t rows, int rank, int step) {
  const auto ids = tensor<std::int64_t>::empty({rows, length});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids.data()[i] = static_cast<std::int64_t>(
        (i * i * 31 + static_cast<std::size_t>(rank) * 17 + static_cast<std::size_t>(step) * 7) %
        vocabulary);
  }
  return ids;
}
inline tensor<float> pictures(std::size_t count, int rank, int step) {
  const auto x = tensor<float>::empty({count, 1, 28, 28});
  parx::random_stream(static_cast<std::uint64_t>(rank), "pictures")
      .substream(static_cast<std::uint64_t>(step))
      .normal(x, 0.F, 1.F);
  return x;
}

struct text {
  tensor<std::int32_t> input_ids;
  tensor<std::int64_t> labels;
};

inline constexpr auto make_gpt = [] {
  return models::gpt<>({.vocab_size = vocabulary,
                        .n_positions = length,
                        .n_embd = 64,
                        .n_layer = 2,
                        .n_head = 4});  // with dropout
};
inline constexpr auto make_llama = [] {
  return models::llama<>({.vocab_size = vocabulary,
                          .hidden_size = 64,
                          .intermediate_size = 160,
                          .num_hidden_layers = 2,
                          .num_attention_heads = 4,
                          .num_key_value_heads = 2,
                          .max_position_embeddings = length});
};
inline constexpr auto make_bert = [] {
  return models::bert_classifier<>({.vocab_size = vocabulary,
                                    .hidden_size = 64,
                                    .num_hidden_layers = 2,
                                    .num_attention_heads = 4,
                                    .intermediate_size = 160,
                                    .max_position_embeddings = length,
                                    .num_labels = 2});
};
inline constexpr auto make_translator = [] {
  return models::encoder_decoder<>({.vocab_size = vocabulary,
                                    .d_model = 64,
                                    .encoder_layers = 1,
                                    .decoder_layers = 1,
                                    .attention_heads = 4,
                                    .ffn_dim = 160,
                                    .max_position_embeddings = length,
                                    .copying = models::copying::pointer});
};
inline constexpr auto make_cnn = [] {
  return models::cnn<>({.image_rows = 28,
                        .image_columns = 28,
                        .hidden_channels = 8,
                        .hidden_size = 64,
                        .num_labels = 2});
};

}  // namespace small_models
