// All operations on variables and tensors, losses and layers that most models do without, by
// PyTorch's names: those of parx/nn.hpp and what is listed here.
//
// A header of its own, so that programs that use none of these compile as fast as before. Each
// header listed is also complete by itself. examples/guide/operations.md has the table of names.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/autograd/ops.hpp>                      // IWYU pragma: export
#include <parx/autograd/ops/arrange.hpp>              // IWYU pragma: export
#include <parx/autograd/ops/compare.hpp>              // IWYU pragma: export
#include <parx/autograd/ops/conv_transpose.hpp>       // IWYU pragma: export
#include <parx/autograd/ops/einsum.hpp>               // IWYU pragma: export
#include <parx/autograd/ops/elementary.hpp>           // IWYU pragma: export
#include <parx/autograd/ops/further_activations.hpp>  // IWYU pragma: export
#include <parx/autograd/ops/further_pools.hpp>        // IWYU pragma: export
#include <parx/autograd/ops/index.hpp>                // IWYU pragma: export
#include <parx/autograd/ops/recurrent.hpp>            // IWYU pragma: export
#include <parx/autograd/ops/reductions.hpp>           // IWYU pragma: export
#include <parx/autograd/ops/upsample.hpp>             // IWYU pragma: export
#include <parx/nn.hpp>                                // IWYU pragma: export
#include <parx/nn/further_layers.hpp>                 // IWYU pragma: export
#include <parx/nn/losses.hpp>                         // IWYU pragma: export
#include <parx/nn/recurrent.hpp>                      // IWYU pragma: export
#include <parx/tensor/arithmetic.hpp>                 // IWYU pragma: export
