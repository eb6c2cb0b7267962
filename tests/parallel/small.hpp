// Small language models and their batches, for the tests of parallel.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>
#include <parx/nn/loss.hpp>
#include <parx/tensor/tensor.hpp>

namespace small {

constexpr std::size_t words = 13, positions = 6, rows_of_step = 12;

struct tokens {
  parx::tensor<std::int32_t> input_ids;
  parx::tensor<std::int64_t> labels;

  [[nodiscard]] std::size_t size() const { return input_ids.extent(0); }
};

/// Rows of the global batch of a step: replica `part` of `parts` has its share of them. Every
/// seventh label counts for nothing.
inline tokens some(int step, int part, int parts) {
  const std::size_t rows = rows_of_step / static_cast<std::size_t>(parts);
  tokens made{parx::tensor<std::int32_t>::empty({rows, positions}),
              parx::tensor<std::int64_t>::empty({rows, positions})};
  for (std::size_t i = 0; i < rows * positions; ++i) {
    const auto at = static_cast<int>(i + static_cast<std::size_t>(part) * rows * positions);
    const int seed = at * 7 + step * 5;
    made.input_ids.data()[i] = seed % static_cast<int>(words);
    const bool counts = at % 7 != 3;
    made.labels.data()[i] = counts ? (seed * seed + at / 5 + 1) % static_cast<int>(words) : -100;
  }
  return made;
}

template <typename T = float>
auto llama() {
  return parx::models::llama<T>{{.vocab_size = words,
                                 .hidden_size = 8,
                                 .intermediate_size = 12,
                                 .num_hidden_layers = 4,
                                 .num_attention_heads = 2,
                                 .num_key_value_heads = 2,
                                 .max_position_embeddings = 16}};
}

/// Its first and last layer share a matrix.
template <typename T = float>
auto tied_gpt() {
  return parx::models::gpt<T>{{.vocab_size = words,
                               .n_positions = 16,
                               .n_embd = 8,
                               .n_layer = 4,
                               .n_head = 2,
                               .embd_pdrop = 0,
                               .attn_pdrop = 0,
                               .resid_pdrop = 0}};
}

constexpr auto criterion = [](const auto& logits, const tokens& part) {
  return parx::nn::cross_entropy(logits, part.labels);
};

}  // namespace small
