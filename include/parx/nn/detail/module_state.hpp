// module_state: what every module holds, whatever its type.
#pragma once

#include <parx/nn/module_hook.hpp>

namespace parx::inline PARX_ABI::nn {

template <typename Derived>
class module;

namespace detail {

class module_state {
 public:
  /// Whether layers that differ in training (dropout) behave as in training.
  [[nodiscard]] bool is_training() const noexcept { return training_; }
  /// `hook` is told of each call of this module from now on; null for nobody. Borrowed.
  void set_hook(module_hook* hook) noexcept { hook_ = hook; }
  [[nodiscard]] module_hook* hook() const noexcept { return hook_; }

 protected:
  module_state() = default;
  // A hook is of the module at this address: its owner knows that one, and lets go of it.
  module_state(module_state&& other) noexcept
      : training_(other.training_), ready_(other.ready_) {}
  module_state& operator=(module_state&& other) noexcept {
    training_ = other.training_;
    ready_ = other.ready_;
    return *this;
  }
  ~module_state() = default;

 private:
  template <typename Derived>
  friend class nn::module;
  friend class part_visitor;

  module_hook* hook_ = nullptr;
  bool training_ = true;
  bool ready_ = false;  // the parameters have their first values
};

}  // namespace detail

}  // namespace parx::nn
