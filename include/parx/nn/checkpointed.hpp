// checkpointed: a module whose activations are recomputed in backward; see autograd/checkpoint.hpp.
//
//   std::vector<parx::nn::checkpointed<block>> layers;
//   parx::nn::sequential model{parx::nn::checkpointed{stage_one{}}, stage_two{}};
//
// It derives from the module and has its members, paths and checkpoints; only the call differs.
// PyTorch's checkpoint_wrapper. A model that leaves the choice to its user has a `checkpointing`
// member instead, and Hugging Face's gradient_checkpointing_enable() and _disable().
#pragma once

#include <utility>

#include <parx/autograd/checkpoint.hpp>
#include <parx/nn/module.hpp>

namespace parx::inline PARX_ABI::nn {

template <module_type Module>
class checkpointed : public Module {
 public:
  using recomputed_module = Module;

  using Module::Module;
  checkpointed() = default;
  explicit checkpointed(Module wrapped) : Module(std::move(wrapped)) {}

  /// The module's result. The module must not move until backward is over.
  template <typename... Inputs>
  auto operator()(const Inputs&... inputs) {
    return parx::checkpoint(static_cast<Module&>(*this), detail::as_input(inputs)...);
  }
};

/// Whether a model's layers keep their activations for backward (the default) or recompute them.
class checkpointing {
 public:
  void enable() noexcept { enabled_ = true; }
  void disable() noexcept { enabled_ = false; }

  /// layer(inputs...). The layer must not move until backward is over.
  template <module_type Layer, typename... Inputs>
  [[nodiscard]] auto run(Layer& layer, const Inputs&... inputs) const {
    return enabled_ ? parx::checkpoint(layer, inputs...) : layer(inputs...);
  }

 private:
  bool enabled_ = false;
};

}  // namespace parx::nn
