// module_state: the state of every module that does not depend on its type.
#pragma once

#include <parx/nn/module_hook.hpp>

namespace parx::inline PARX_ABI::nn {

template <typename Derived>
class module;

namespace detail {

class module_state {
 public:
  /// Whether layers that behave differently in training (dropout) do so.
  [[nodiscard]] bool is_training() const noexcept { return training_; }
  /// Runs `hook` around each call of this module from now on; null: none. Borrowed.
  void set_hook(module_hook* hook) noexcept { hook_ = hook; }
  [[nodiscard]] module_hook* hook() const noexcept { return hook_; }

 protected:
  module_state() = default;
  // A move leaves the hook behind: its owner knows this module by its address and removes it there.
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
  bool ready_ = false;  // the parameters have initial values
};

}  // namespace detail

}  // namespace parx::nn
