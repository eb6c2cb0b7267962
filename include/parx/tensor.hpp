// The tensor chapter: shared, strided tensors, their arithmetic, and counter-based random numbers.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/tensor/batch.hpp>
#include <parx/tensor/flush_denormals.hpp>
#include <parx/tensor/instances.hpp>  // IWYU pragma: export
#include <parx/tensor/matmul.hpp>
#include <parx/tensor/page_pool.hpp>
#include <parx/tensor/philox.hpp>
#include <parx/tensor/pointwise.hpp>
#include <parx/tensor/pool.hpp>
#include <parx/tensor/print.hpp>
#include <parx/tensor/random.hpp>
#include <parx/tensor/reduction.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/tensor/storage.hpp>
#include <parx/tensor/tensor.hpp>
