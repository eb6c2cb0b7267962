// What a plan knows of stages and of layers that are cut: how long 1F1B takes, what the heaviest
// stage has, and which link an axis of a mesh uses. Pure.
#pragma once

#include <parx/core/check.hpp>
#include <parx/plan/cluster.hpp>
#include <parx/plan/cut.hpp>
#include <parx/plan/shapes.hpp>

namespace parx::inline PARX_ABI {

/// Seconds of 1F1B, with those of a forward and a backward of one stage and one micro-batch, and
/// `hop` until what a stage makes is at the next one. Without hops (m + p - 1) (f + b).
[[nodiscard]] double one_f_one_b_seconds(int stages, int microbatches, double forward,
                                         double backward, double hop = 0);

/// The parameters of the heaviest of `stages`, cut by parameters, on one of `parts` ranks that cut
/// its layers: matrices are cut, vectors are not. Units after the first are layers; what is in the
/// root goes with the layer beside it in the order of the model.
[[nodiscard]] model_shapes heaviest_stage(const model_shapes& whole, int stages, int parts);

/// What a rank has of a link along an axis of `size` ranks whose neighbours are `stride` ranks
/// apart, where all lines of the mesh use it at a time.
[[nodiscard]] plan_link link_along(const cluster& machine, int stride, int size);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/plan/detail/stages_impl.hpp>
#endif
