// checkpointed: a module whose activations are recomputed in backward; see autograd/checkpoint.hpp.
//
//   std::vector<parx::nn::checkpointed<block>> layers;
//   parx::nn::sequential model{parx::nn::checkpointed{stage_one{}}, stage_two{}};
//
// It is the module, with its members, paths and checkpoints; only the call differs. PyTorch's
// checkpoint_wrapper.
#pragma once

#include <utility>

#include <parx/autograd/checkpoint.hpp>
#include <parx/nn/module.hpp>

namespace parx::nn {

template <module_type Module>
class checkpointed : public Module {
 public:
  using Module::Module;
  checkpointed() = default;
  explicit checkpointed(Module wrapped) : Module(std::move(wrapped)) {}

  /// The module's result. It must not move until backward is over.
  template <typename... Inputs>
  auto operator()(const Inputs&... inputs) {
    return parx::checkpoint(static_cast<Module&>(*this), detail::as_input(inputs)...);
  }
};

}  // namespace parx::nn
