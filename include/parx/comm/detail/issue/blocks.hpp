// blocks: the argument checks of the collectives whose whole vector has one block for each rank:
// all_gather, gather, scatter and reduce_scatter.
#pragma once

#include <cstddef>

#include <parx/comm/block_counts.hpp>
#include <parx/comm/detail/issue/arguments.hpp>

namespace parx::inline PARX_ABI::detail {

/// The two buffers of such a call, and what errors say about them.
struct block_buffers {
  elements& whole;         ///< all blocks; of rooted operations only at the root
  const char* whole_must;  ///< "the output must have room for"
  const elements& block;   ///< this rank's
  const char* block_is;    ///< "the input"
  const char* block_elements = "elements";
};

/// Fills in the sizes of the blocks: counts[r] elements (_v), or, without counts, all as many as
/// this rank's. On ranks without the whole vector its data becomes null.
inline void fill_blocks(const call_check& check, const block_counts* counts,
                        const block_buffers& of, collective_arguments& given) {
  const bool has_whole = !has_root(given.what) || check.group().rank() == given.root;
  if (!has_whole) of.whole.data = nullptr;
  if (counts == nullptr) {
    given.count = check.for_all_ranks(of.block);
    given.own_begin = of.block.count * check.own_rank();
    check.require(!has_whole || of.whole.count == given.count, "{} {} ranks x {} {} = {}, not {}",
                  of.whole_must, check.group().size(), of.block.count, of.block_elements,
                  given.count, of.whole.count);
    return;
  }
  given.counts = counts->view();
  given.count = check.sum(given.counts, "counts", given.output);
  given.own_begin = check.begin_of_own(given.counts);
  check.require(!has_whole || of.whole.count == given.count,
                "{} the sum of all counts, {} elements, not {}", of.whole_must, given.count,
                of.whole.count);
  const std::size_t own_count = given.counts[check.own_rank()];
  check.require(of.block.count == own_count, "{} holds {} elements, but counts[{}] is {}",
                of.block_is, of.block.count, check.group().rank(), own_count);
}

}  // namespace parx::detail
