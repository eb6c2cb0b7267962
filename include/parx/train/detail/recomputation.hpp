// recomputation: trainer_options::gradient_checkpointing, for models that support it.
#pragma once

#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI::train::detail {

template <typename Model>
void enable_gradient_checkpointing(Model& model) {
  if constexpr (requires { model.gradient_checkpointing_enable(); }) {
    model.gradient_checkpointing_enable();
  } else {
    throw_usage(
        "trainer: gradient_checkpointing is for models with gradient_checkpointing_enable(), which "
        "this one has not. Wrap its layers in nn::checkpointed instead, see nn/checkpointed.hpp");
  }
}

}  // namespace parx::train::detail
