// gather and scatter: one block per rank, to or from the root.
//
// tree: a binomial tree in which each block is forwarded by its own actions and streams through the
//   ranks on its way. log2(P) messages at the root, but an inner rank carries the blocks of its
//   whole subtree: for small blocks.
// direct: each block is sent over the link between its rank and the root. At most `window` blocks
//   are in flight at a time: more streams into one host would be slower (incast). In a gather the
//   root requests the later ranks' blocks by an empty message.
#pragma once

#include <algorithm>
#include <vector>

#include <parx/comm/schedule/partition.hpp>
#include <parx/comm/schedule/tree.hpp>

namespace parx::inline PARX_ABI::algorithms {

/// Input holds block `rank`; the root's output receives all of them.
[[nodiscard]] inline schedule tree_gather(int rank, const partition& blocks, int root) {
  schedule steps{.name = algorithm::tree};
  const int world = blocks.parts();
  const int v = wrap(rank - root, world);
  const int edge = detail::tree_edge(v, world);
  const int parent = wrap(v - edge + root, world);
  const region own = blocks.alone(place::input, rank);
  if (v == 0) {
    steps.copy(own, blocks.block(place::output, rank));
  } else {
    steps.send(parent, own);
  }
  for (int u = v + 1; u < v + edge && u < world; ++u) {
    const int owner = wrap(u + root, world);
    const int child = wrap(v + detail::tree_child(u - v) + root, world);
    if (v == 0) {
      steps.receive(child, blocks.block(place::output, owner));
      continue;
    }
    const region piece{place::scratch, steps.scratch_count, blocks.count(owner)};
    steps.scratch_count += piece.count;
    steps.send(parent, piece, steps.receive(child, piece));
  }
  return steps;
}

/// The root's input holds all blocks; output receives block `rank`.
[[nodiscard]] inline schedule tree_scatter(int rank, const partition& blocks, int root) {
  schedule steps{.name = algorithm::tree};
  const int world = blocks.parts();
  const int v = wrap(rank - root, world);
  const int edge = detail::tree_edge(v, world);
  const int parent = wrap(v - edge + root, world);
  // The farthest block first: it has the longest way.
  for (int u = std::min(v + edge, world) - 1; u > v; --u) {
    const int owner = wrap(u + root, world);
    const int child = wrap(v + detail::tree_child(u - v) + root, world);
    if (v == 0) {
      steps.send(child, blocks.block(place::input, owner));
      continue;
    }
    const region piece{place::scratch, steps.scratch_count, blocks.count(owner)};
    steps.scratch_count += piece.count;
    steps.send(child, piece, steps.receive(parent, piece));
  }
  const region own = blocks.alone(place::output, rank);
  if (v == 0) {
    steps.copy(blocks.block(place::input, rank), own);
  } else {
    steps.receive(parent, own);
  }
  return steps;
}

/// Input holds block `rank`; the root's output receives all of them.
[[nodiscard]] inline schedule direct_gather(int rank, const partition& blocks, int root,
                                            int window = default_window) {
  schedule steps{.name = algorithm::direct};
  const int world = blocks.parts();
  const region own = blocks.alone(place::input, rank);
  if (rank != root) {
    const bool is_requested = wrap(rank - root, world) > window;
    steps.send(root, own, is_requested ? steps.receive(root, {}) : no_action);
    return steps;
  }
  steps.copy(own, blocks.block(place::output, rank));
  std::vector<std::int32_t> received{no_action};
  for (int distance = 1; distance < world; ++distance) {
    const int peer = wrap(root + distance, world);
    if (distance > window) {
      steps.send(peer, {}, received[static_cast<std::size_t>(distance - window)]);
    }
    received.push_back(steps.receive(peer, blocks.block(place::output, peer)));
  }
  return steps;
}

/// The root's input holds all blocks; output receives block `rank`.
[[nodiscard]] inline schedule direct_scatter(int rank, const partition& blocks, int root,
                                             int window = default_window) {
  schedule steps{.name = algorithm::direct};
  const int world = blocks.parts();
  const region own = blocks.alone(place::output, rank);
  if (rank != root) {
    steps.receive(root, own);
    return steps;
  }
  std::vector<std::int32_t> sent{no_action};
  for (int distance = 1; distance < world; ++distance) {
    const int peer = wrap(root + distance, world);
    const std::int32_t gate = distance > window
                                  ? steps.fence(sent[static_cast<std::size_t>(distance - window)])
                                  : no_action;
    sent.push_back(steps.send(peer, blocks.block(place::input, peer), gate));
  }
  steps.copy(blocks.block(place::input, rank), own);
  return steps;
}

}  // namespace parx::algorithms
