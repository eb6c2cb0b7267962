// module_hook: callbacks around the calls of a module, for a wrapper (fsdp).
//
// They run around each module(inputs...), including its recomputation in backward, but not around
// methods other than forward. A module has at most one hook: module_state::set_hook.
#pragma once

#include <type_traits>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::nn {

class module_hook {
 public:
  virtual ~module_hook() = default;
  /// An exception passes on to the caller of the module; after_forward() is then not called.
  virtual void before_forward() = 0;
  /// Also called when forward() throws.
  virtual void after_forward() noexcept = 0;
  /// Before after_forward(): forward() has returned a variable whose values are at `data`.
  virtual void returns(const void* /*data*/) {}

 protected:
  module_hook() = default;
  module_hook(const module_hook&) = default;
  module_hook& operator=(const module_hook&) = default;
};

/// Runs the hook of a module around one call; does nothing for null.
class hooked_call {
 public:
  explicit hooked_call(module_hook* hook) : hook_(hook) {
    if (hook_ != nullptr) hook_->before_forward();
  }
  ~hooked_call() {
    if (hook_ != nullptr) hook_->after_forward();
  }
  /// What forward() returns.
  template <typename Forward>
  auto result_of(Forward&& forward) const {
    if constexpr (std::is_void_v<decltype(forward())>) {
      forward();
    } else {
      auto result = forward();
      if constexpr (requires { result.requires_grad() ? result.value().data() : nullptr; }) {
        // A parameter itself is not read yet.
        if (hook_ != nullptr && result.defined() && !result.is_leaf())
          hook_->returns(result.value().data());
      }
      return result;
    }
  }

  hooked_call(const hooked_call&) = delete;
  hooked_call& operator=(const hooked_call&) = delete;

 private:
  module_hook* const hook_;
};

}  // namespace parx::nn
