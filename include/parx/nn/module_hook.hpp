// module_hook: how a wrapper (fsdp) learns that a module of a model is called.
//
// It is told of calls, module(inputs...), also where the module is recomputed in backward; not of
// methods other than forward. One hook a module: module_state::set_hook.
#pragma once

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::nn {

class module_hook {
 public:
  virtual ~module_hook() = default;
  /// What it throws the call throws, and after_forward() does not follow.
  virtual void before_forward() = 0;
  /// Also where forward() throws.
  virtual void after_forward() noexcept = 0;

 protected:
  module_hook() = default;
  module_hook(const module_hook&) = default;
  module_hook& operator=(const module_hook&) = default;
};

/// One call of a module whose hook this is; null for none.
class hooked_call {
 public:
  explicit hooked_call(module_hook* hook) : hook_(hook) {
    if (hook_ != nullptr) hook_->before_forward();
  }
  ~hooked_call() {
    if (hook_ != nullptr) hook_->after_forward();
  }
  hooked_call(const hooked_call&) = delete;
  hooked_call& operator=(const hooked_call&) = delete;

 private:
  module_hook* const hook_;
};

}  // namespace parx::nn
