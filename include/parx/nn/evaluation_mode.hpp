// evaluation_mode: a scope in which a model is evaluated.
#pragma once

#include <vector>

#include <parx/autograd/no_grad.hpp>

namespace parx::inline PARX_ABI::nn {

/// Puts a module into evaluation mode, without gradients, while it lives. Then each layer returns
/// to its earlier mode. `Module` may be a class that has only eval() and train(), or neither.
template <typename Module>
class [[nodiscard]] evaluation_mode {
 public:
  explicit evaluation_mode(Module& module) : module_(module) {
    if constexpr (has_parts) were_training_ = module.training_modes();
    if constexpr (requires { module.eval(); }) module.eval();
  }
  ~evaluation_mode() {
    if constexpr (has_parts) {
      module_.set_training_modes(were_training_);
    } else if constexpr (requires { module_.train(); }) {
      module_.train();
    }
  }
  evaluation_mode(const evaluation_mode&) = delete;
  evaluation_mode& operator=(const evaluation_mode&) = delete;

 private:
  static constexpr bool has_parts = requires(Module& m) { m.training_modes(); };

  Module& module_;
  std::vector<bool> were_training_;
  no_grad guard_;
};

}  // namespace parx::nn
