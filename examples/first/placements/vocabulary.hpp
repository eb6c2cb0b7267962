// vocabulary: an embedding cut by its rows, and the loss of logits cut by classes, for placements.
//
//   const auto x = reduce_from(axis, vocab_parallel_embedding(axis, table, words, ids));  // P -> I
//   const auto logits = column_linear(copy_to(axis, x), table);     // tied: S(-1), never gathered
//   vocab_cross_entropy(axis, logits, words, labels).backward();
//
// autograd/ops/vocabulary.hpp says what they compute and send.
#pragma once

#include <concepts>
#include <cstddef>

#include <parx/autograd/ops/vocabulary.hpp>
#include <parx/core/source.hpp>
#include "placement.hpp"

namespace parx::inline PARX_ABI::tp {

/// S(0) -> P. The whole table has `rows` rows. Sends nothing.
template <placed_type Table, std::integral Index>
[[nodiscard]] auto vocab_parallel_embedding(const rank_axis& axis, const Table& table,
                                            std::size_t rows, const tensor<Index>& indices) {
  static_assert(is_sharded_by<Table, 0>,
                "the table of vocab_parallel_embedding is cut by its rows: sharded<T, 0>");
  return partial(embedding_of_chunk(axis, table.local(), rows, indices));
}

/// S(-1) -> I. The whole logits have `classes` classes. Two all-reduces: one number for each row,
/// then two (with label smoothing three).
template <placed_type X, std::integral Label>
[[nodiscard]] auto vocab_cross_entropy(rank_axis& axis, const X& logits, std::size_t classes,
                                       const tensor<Label>& labels,
                                       const cross_entropy_options& options = {},
                                       call_site site = call_site::current()) {
  static_assert(is_sharded_by<X, -1>,
                "vocab_cross_entropy takes logits that are cut by classes: for whole ones there is "
                "cross_entropy(logits, labels)");
  return parx::vocab_cross_entropy(axis, logits.local(), classes, labels, options, site);
}

}  // namespace parx::tp
