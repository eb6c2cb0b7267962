// module_state: what every module holds, whatever its type.
#pragma once

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::nn {

template <typename Derived>
class module;

namespace detail {

class module_state {
 public:
  /// Whether layers that differ in training (dropout) behave as in training.
  [[nodiscard]] bool is_training() const noexcept { return training_; }

 protected:
  module_state() = default;
  module_state(module_state&&) noexcept = default;
  module_state& operator=(module_state&&) noexcept = default;
  ~module_state() = default;

 private:
  template <typename Derived>
  friend class nn::module;
  friend class part_visitor;

  bool training_ = true;
  bool ready_ = false;  // the parameters have their first values
};

}  // namespace detail

}  // namespace parx::nn
