// The parts of a plan for stages and cut layers: the time of 1F1B, the heaviest stage, and the link
// that an axis of a mesh uses. Pure.
#pragma once

#include <parx/plan/cluster.hpp>
#include <parx/plan/shapes.hpp>

namespace parx::inline PARX_ABI {

/// Seconds of a step under 1F1B. `forward` and `backward` are those of one stage and one
/// micro-batch, `hop` those of a message between stages. Without hops it is (m + p - 1) (f + b).
[[nodiscard]] double one_f_one_b_seconds(int stages, int microbatches, double forward,
                                         double backward, double hop = 0);

/// The parameters of the heaviest of `stages` stages (balanced by bytes), as one of the `parts`
/// ranks over which layers are cut has them: matrices are cut, vectors are not. Units after the
/// first are layers. Parameters of the root form one block before the layers and one after them, in
/// the order of the model.
[[nodiscard]] model_shapes heaviest_stage(const model_shapes& whole, int stages, int parts);

/// A rank's part of the link along an axis of `size` ranks whose neighbours are `stride` ranks
/// apart, while all lines of the mesh use the link at the same time.
[[nodiscard]] plan_link link_along(const cluster& machine, int stride, int size);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/plan/detail/stages_impl.hpp>
#endif
