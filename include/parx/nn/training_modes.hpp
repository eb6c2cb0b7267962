// training_modes: which modules of a model are in training mode, to be restored later.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <parx/nn/detail/module_visitor.hpp>

namespace parx::inline PARX_ABI::nn {

/// Of the modules of one model, which must not move meanwhile.
class training_modes {
 public:
  /// Allocates nothing, and calls nothing of the model: it is for destructors, which also run when
  /// memory is exhausted.
  void restore() const noexcept {
    for (const auto& [mode, saved] : modes_) *mode = saved;
  }

 private:
  template <typename Self>
  friend class module_functions;

  struct saving final : detail::module_visitor {
    explicit saving(training_modes& all) : into(all) {}
    void on_module(const std::string&, const module_view& part) override {
      bool& mode = training(part.module);
      into.modes_.emplace_back(&mode, mode);
    }
    training_modes& into;
  };

  std::vector<std::pair<bool*, bool>> modes_;
};

}  // namespace parx::nn
