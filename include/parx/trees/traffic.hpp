// traffic: what the making of a tree sends, as a formula.
//
// A tree of D full levels makes 2^(D-1) histograms (siblings are differences) and searches 2^D - 1
// nodes. A histogram is reduce_scattered: of its C cells of 16 bytes each reaches one rank, so all
// ranks together send (P - 1) C 16. The best splits, 40 bytes each, are reduced and spread, in
// 80 (P - 1) bytes. Before, 40 bytes are all_reduced: the scales and the sums of the gradients. So
// much is the least that any algorithm sends; parx's comm may send small vectors more than once to
// save time.
//
// With voting both children's histograms are sent, of 2 k columns, and each rank's k votes of 4
// bytes reach P - 1 ranks. That is the most: fewer columns are sent where ranks vote for the same.
//
// Of quantised gradients a cell has 8 bytes, or 4 at nodes of few rows, so the formula is the most
// here, too; 8 bytes for each of the D levels are all_reduced to know which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <parx/core/formatted.hpp>
#include <parx/trees/split.hpp>

namespace parx::inline PARX_ABI::trees {

/// A tree of `depth` full levels made depth-wise.
struct tree_shape {
  std::uint64_t cells = 0;  ///< of the histograms sent for a node: of all columns, or of 2 top_k
  int depth = 0;
  int ranks = 1;
  int top_k = 0;        ///< 0: no voting
  int cell_bytes = 16;  ///< bytes_of_cell(): less than 16 where gradients are quantised
};

/// Of all ranks together, without the 64 bytes of a message's header.
struct tree_traffic {
  std::uint64_t histogram_bytes = 0;
  std::uint64_t vote_bytes = 0;
  std::uint64_t split_bytes = 0;
  std::uint64_t scale_bytes = 0;
  int messages = 0;  ///< collectives, one after the other

  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return histogram_bytes + vote_bytes + split_bytes + scale_bytes;
  }
};

/// The formula above.
[[nodiscard]] inline tree_traffic traffic_of_tree(const tree_shape& shape) {
  const auto others = static_cast<std::uint64_t>(shape.ranks - 1);
  const std::uint64_t leaves = std::uint64_t{1} << shape.depth;
  const auto votes = static_cast<std::uint64_t>(shape.top_k) * (others + 1) * 4;
  const auto cell = static_cast<std::uint64_t>(shape.cell_bytes);
  const bool elects = shape.top_k > 0;
  const int counts = cell < 16 ? shape.depth : 0;
  return {.histogram_bytes = (elects ? leaves - 1 : leaves / 2) * shape.cells * cell * others,
          .vote_bytes = (leaves - 1) * votes * others,
          .split_bytes = 2 * others * (leaves - 1) * sizeof(split_candidate),
          .scale_bytes = 2 * others * (40 + 8 * static_cast<std::uint64_t>(counts)),
          .messages = others > 0 ? 2 + (elects ? 3 : 2) * shape.depth + counts : 0};
}

/// The formula with its numbers, a line each.
[[nodiscard]] inline std::string explain_traffic(const tree_shape& shape) {
  const tree_traffic sent = traffic_of_tree(shape);
  const std::uint64_t leaves = std::uint64_t{1} << shape.depth;
  const int others = shape.ranks - 1;
  const bool elects = shape.top_k > 0;
  std::string text =
      formatted("a tree of {} levels over {} ranks, {} cells a histogram{}:\n", shape.depth,
                shape.ranks, shape.cells, elects || shape.cell_bytes < 16 ? ", at most" : "") +
      formatted("  histograms  {} x {} cells x {} B x {} = {} B\n",
                elects ? leaves - 1 : leaves / 2, shape.cells, shape.cell_bytes, others,
                sent.histogram_bytes);
  if (elects) {
    text += formatted("  votes       {} nodes x {} x 4 B x {} x {} = {} B\n", leaves - 1,
                      shape.top_k, shape.ranks, others, sent.vote_bytes);
  }
  return text +
         formatted(
             "  best splits {} nodes x 40 B x 2 x {} = {} B\n"
             "  scales      {} B x 2 x {} = {} B\n",
             leaves - 1, others, sent.split_bytes,
             shape.cell_bytes < 16 ? 40 + 8 * shape.depth : 40, others, sent.scale_bytes) +
         formatted("  together    {} B, {} a rank, in {} collectives\n", sent.bytes(),
                   sent.bytes() / static_cast<std::uint64_t>(shape.ranks), sent.messages);
}

}  // namespace parx::trees
