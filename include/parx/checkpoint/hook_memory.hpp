// hook_memory: what a gradient hook keeps from step to step, PowerSGD's error feedback for example,
// as checkpoints see it (hook_state.hpp).
#pragma once

#include <string>

#include <parx/core/abi.hpp>
#include <parx/types/buffer.hpp>

namespace parx::inline PARX_ABI {

enum class hook_memory_kind {
  equal,   ///< the same bits on all ranks
  addend,  ///< differs by rank; only the sum over the ranks matters
};

/// A piece of a hook's state. The hook owns the memory.
struct hook_memory {
  std::string name;  ///< "bucket.0.left_out"
  buffer_view values;
  hook_memory_kind kind = hook_memory_kind::equal;
};

}  // namespace parx
