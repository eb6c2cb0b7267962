// hidden_tokens: word dropout: replaces random tokens of training texts, so that a model cannot
// memorise the texts.
//
//   model(hidden_tokens(batch.input_ids, special, {.probability = 0.1, .by = unknown}, seed))
//
// A pure function of the seed: a resumed run hides the same tokens again. Any thread.
// Word dropout: Iyyer et al., Deep Unordered Composition (ACL 2015), section 3.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/core/check.hpp>
#include <parx/data/text/encoding.hpp>
#include <parx/data/text/vocabulary.hpp>
#include <parx/tensor/random.hpp>
#include <parx/tensor/tensor.hpp>

namespace examples {

struct token_dropout {
  double probability = 0.1;
  parx::data::token_id by = 0;  ///< replaces a hidden token: [MASK] or [UNK]
  /// The number of the first row among those of all ranks. What is hidden in a row depends on the
  /// row's number, not on the rank that has it, nor on how far it is padded.
  std::size_t first_row = 0;
};

/// A copy of `ids` [rows, positions] with some tokens replaced, but never special ones; `ids` where
/// the probability is 0. Throws usage_error for a probability outside [0, 1].
[[nodiscard]] inline parx::tensor<parx::data::token_id> hidden_tokens(
    const parx::tensor<parx::data::token_id>& ids, const parx::data::special_ids& special,
    const token_dropout& options, std::uint64_t seed) {
  parx::require(options.probability >= 0 && options.probability <= 1,
                "hidden_tokens: the probability {} is not in [0, 1]", options.probability);
  if (options.probability == 0) return ids;
  const parx::tensor<parx::data::token_id> result = ids.clone();
  const double limit = options.probability * 0x1p32;
  const parx::random_stream all(seed, "hidden_tokens");
  for (std::size_t row = 0; row < ids.extent(0); ++row) {
    parx::data::token_id* const id = result.data() + row * ids.extent(1);
    all.substream(options.first_row + row)
        .words(0, ids.extent(1),
               [&](const std::uint32_t* word, std::uint64_t at, std::size_t count) {
                 for (std::size_t i = 0; i < count; ++i) {
                   parx::data::token_id& each = id[at + i];
                   const bool plain =
                       each != special.start && each != special.separator && each != special.pad;
                   if (plain && static_cast<double>(word[i]) < limit) each = options.by;
                 }
               });
  }
  return result;
}

}  // namespace examples
