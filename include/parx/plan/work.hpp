// step_work: the work of a step, as input of a plan: what a rank computes, and what it keeps for
// backward.
#pragma once

#include <cstddef>

#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI {

/// For one rank, and for one micro-batch where not stated otherwise.
struct step_work {
  double forward_flops = 0;
  double backward_flops = 0;
  std::size_t activation_bytes = 0;  ///< at the end of forward, plus backward's temporaries
  std::size_t table_rows = 0;        ///< most rows that a batch looks up in a table
  std::size_t micro_batches = 1;     ///< forward and backward passes in a step
  std::size_t layers = 0;            ///< layers that can be cut or be stages; 0: unknown
  std::size_t boundary_bytes = 0;    ///< activations passed from one layer to the next
};

/// Which activations are in memory until backward.
enum class activations {
  kept,
  computed_again  ///< gradient_checkpointing_enable(): a layer only keeps its input
};

enum class feed_forward {
  plain,  ///< GPT, BERT: width -> inner -> width
  gated   ///< Llama: two matrices up, one down
};

/// The sizes of a transformer, from which its work is computed; by default GPT-2's.
struct transformer_sizes {
  std::size_t layers = 12;
  std::size_t width = 768;
  std::size_t inner = 3072;
  std::size_t vocabulary = 50257;  ///< classes of the logits at every position; 0: no logits
  std::size_t batch = 8;           ///< sequences of one rank in one micro-batch
  std::size_t positions = 1024;
  std::size_t element_bytes = 4;  ///< of one activation value
  std::size_t micro_batches = 1;
  feed_forward form = feed_forward::plain;
  activations kept = activations::kept;
};

/// For h = width, f = inner, V = vocabulary, s = positions and n = batch x s tokens:
///   a layer keeps n (12 h + 2 f) elements, a gated one n (13 h + 3 f); with recomputation n h, and
///     one layer at a time keeps all; attention keeps no scores, since it is computed in tiles;
///   the rest of the model, and the temporaries of backward, take n (7 h + f + 2 V);
///   a token takes 2 (4 h^2 + 2 h f) operations in a layer (gated 2 (4 h^2 + 3 h f)), 2 s h in
///     causal attention, 2 h V for the logits, and twice as many in backward.
/// Measured on gpt and llama: tests/plan/activations_test.cpp.
[[nodiscard]] inline step_work work_of(const transformer_sizes& t) {
  require(t.layers > 0 && t.width > 0 && t.batch > 0 && t.positions > 0 && t.micro_batches > 0,
          "work_of: a transformer has layers, a width, a batch, positions and micro_batches");
  const bool gated = t.form == feed_forward::gated;
  const std::size_t tokens = t.batch * t.positions;
  const std::size_t layer =
      gated ? 13 * t.width + 3 * t.inner : 12 * t.width + 2 * t.inner;
  const bool again = t.kept == activations::computed_again;
  const std::size_t layers = again ? t.layers * t.width + layer : t.layers * layer;
  const auto h = static_cast<double>(t.width), f = static_cast<double>(t.inner),
             l = static_cast<double>(t.layers), n = static_cast<double>(tokens);
  const double matrices = 2 * h * (4 * h + (gated ? 3 : 2) * f);
  const double in_layers = n * l * (matrices + 2 * static_cast<double>(t.positions) * h);
  const double forward = in_layers + n * 2 * h * static_cast<double>(t.vocabulary);
  return {.forward_flops = forward,
          .backward_flops = 2 * forward + (again ? in_layers : 0),
          .activation_bytes = t.element_bytes * tokens *
                              (layers + 7 * t.width + t.inner + 2 * t.vocabulary),
          .table_rows = tokens,
          .micro_batches = t.micro_batches,
          .layers = t.layers,
          .boundary_bytes = t.element_bytes * tokens * t.width};
}

}  // namespace parx
