// L5: modules, layers, initialisation and losses, after PyTorch's names and defaults.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/autograd/ops.hpp>        // IWYU pragma: export
#include <parx/autograd/print.hpp>      // IWYU pragma: export
#include <parx/nn/activation.hpp>       // IWYU pragma: export
#include <parx/nn/attention.hpp>        // IWYU pragma: export
#include <parx/nn/blocks.hpp>           // IWYU pragma: export
#include <parx/nn/batch_norm.hpp>       // IWYU pragma: export
#include <parx/nn/checkpointed.hpp>     // IWYU pragma: export
#include <parx/nn/conv.hpp>             // IWYU pragma: export
#include <parx/nn/dropout.hpp>          // IWYU pragma: export
#include <parx/nn/embedding.hpp>        // IWYU pragma: export
#include <parx/nn/evaluation_mode.hpp>  // IWYU pragma: export
#include <parx/nn/init.hpp>             // IWYU pragma: export
#include <parx/nn/instances.hpp>        // IWYU pragma: export
#include <parx/nn/linear.hpp>           // IWYU pragma: export
#include <parx/nn/linear_cross_entropy.hpp>  // IWYU pragma: export
#include <parx/nn/loss.hpp>             // IWYU pragma: export
#include <parx/nn/module.hpp>           // IWYU pragma: export
#include <parx/nn/norm.hpp>             // IWYU pragma: export
#include <parx/nn/pool.hpp>             // IWYU pragma: export
#include <parx/nn/position.hpp>         // IWYU pragma: export
#include <parx/nn/random_layer.hpp>     // IWYU pragma: export
#include <parx/nn/sequential.hpp>       // IWYU pragma: export
#include <parx/nn/transformer.hpp>      // IWYU pragma: export
#include <parx/tensor/arithmetic.hpp>   // IWYU pragma: export
