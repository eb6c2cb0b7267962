// traffic: what the making of a tree sends, as a formula.
//
// A tree of D full levels makes 2^(D-1) histograms (siblings are differences) and searches 2^D - 1
// nodes. A histogram is reduce_scattered: of its C cells of 16 bytes each reaches one rank, so all
// ranks together send (P - 1) C 16. The best splits, 40 bytes each, are reduced and spread: 2 (P -
// 1)
// 40. Before, 40 bytes are all_reduced: the scales and the sums of the gradients. So much is the
// least that any algorithm sends; parx's comm may send small vectors more than once to save time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <parx/core/formatted.hpp>
#include <parx/trees/split.hpp>

namespace parx::inline PARX_ABI::trees {

/// Of all ranks together, without the 64 bytes of a message's header.
struct tree_traffic {
  std::uint64_t histogram_bytes = 0;
  std::uint64_t split_bytes = 0;
  std::uint64_t scale_bytes = 0;
  int messages = 0;  ///< collectives, one after the other

  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return histogram_bytes + split_bytes + scale_bytes;
  }
};

/// A tree of `depth` full levels made depth-wise, of columns with `cells` codes together.
[[nodiscard]] inline tree_traffic traffic_of_tree(std::uint64_t cells, int depth, int ranks) {
  const auto others = static_cast<std::uint64_t>(ranks - 1);
  const std::uint64_t leaves = std::uint64_t{1} << depth;
  return {.histogram_bytes = leaves / 2 * cells * sizeof(sums) * others,
          .split_bytes = 2 * others * (leaves - 1) * sizeof(split_candidate),
          .scale_bytes = 2 * others * 40,
          .messages = ranks > 1 ? 2 + 2 * depth : 0};
}

/// The formula with its numbers, a line each.
[[nodiscard]] inline std::string explain_traffic(std::uint64_t cells, int depth, int ranks) {
  const tree_traffic sent = traffic_of_tree(cells, depth, ranks);
  const std::uint64_t leaves = std::uint64_t{1} << depth;
  return formatted(
             "a tree of {} levels over {} ranks, {} cells a histogram:\n"
             "  histograms  {} x {} cells x 16 B x {} = {} B\n",
             depth, ranks, cells, leaves / 2, cells, ranks - 1, sent.histogram_bytes) +
         formatted(
             "  best splits {} nodes x 40 B x 2 x {} = {} B\n"
             "  scales      40 B x 2 x {} = {} B\n",
             leaves - 1, ranks - 1, sent.split_bytes, ranks - 1, sent.scale_bytes) +
         formatted("  together    {} B, {} a rank, in {} collectives\n", sent.bytes(),
                   sent.bytes() / static_cast<std::uint64_t>(ranks), sent.messages);
}

}  // namespace parx::trees
