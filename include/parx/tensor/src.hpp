// The compiled part of tensor, for parx/src.hpp.
#pragma once

#include <parx/tensor/detail/bf16_gemm_impl.hpp>
#include <parx/tensor/detail/bf16_processor_impl.hpp>
#include <parx/tensor/detail/gemm_impl.hpp>
#include <parx/tensor/detail/shard_spec_impl.hpp>
#include <parx/tensor/instances.hpp>

namespace parx::inline PARX_ABI {
PARX_TENSOR_INSTANCES(, float)
PARX_TENSOR_INSTANCES(, double)
}  // namespace parx
