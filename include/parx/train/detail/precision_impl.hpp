// Definitions of precision.hpp.
#pragma once

#include <parx/checkpoint.hpp>
#include <parx/train/precision.hpp>

namespace parx::inline PARX_ABI::train {

PARX_INLINE precision::precision(const trainer_options& options) {
  if (options.bf16) products_ = dtype::bfloat16;
  if (options.fp16) products_ = dtype::float16;
  if (options.fp16) scaler_.emplace();
}

PARX_INLINE void precision::add_to(checkpoint_parts& parts) {
  if (scaler_) parts.add("scaler", *scaler_);
}

PARX_INLINE void precision::broadcast(process_group& group, int root, call_site site) {
  if (scaler_) broadcast_state(group, *scaler_, root, site);
}

PARX_INLINE void precision::load(const saved_checkpoint& saved) {
  if (scaler_ && saved.contains("scaler.safetensors")) saved.load("scaler", *scaler_);
}

}  // namespace parx::train
