// evaluation_mode: a scope in which a model is evaluated.
#pragma once

#include <parx/autograd/no_grad.hpp>
#include <parx/nn/training_modes.hpp>

namespace parx::inline PARX_ABI::nn {

/// Puts a module into evaluation mode, without gradients, while it lives. Then each layer returns
/// to its earlier mode. `Module` may be a class that has only eval() and train(), or neither.
template <typename Module>
class [[nodiscard]] evaluation_mode {
 public:
  explicit evaluation_mode(Module& module) : module_(module) {
    if constexpr (has_parts) before_ = module.training_modes();
    if constexpr (requires { module.eval(); }) module.eval();
  }
  ~evaluation_mode() {
    if constexpr (has_parts) {
      before_.restore();
    } else if constexpr (requires { module_.train(); }) {
      module_.train();
    }
  }
  evaluation_mode(const evaluation_mode&) = delete;
  evaluation_mode& operator=(const evaluation_mode&) = delete;

 private:
  static constexpr bool has_parts = requires(Module& m) { m.training_modes(); };

  Module& module_;
  training_modes before_;
  no_grad guard_;
};

}  // namespace parx::nn
