// any_module: a module without its type, for wrappers that are compiled once for all models.
//
//   nn::any_module<float> model{net};
//   model.for_each_parameter(visitor);      // as net.for_each_parameter(visitor)
//
// All that module_functions.hpp has can be done with it; forward() is not among that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/nn/detail/module_state.hpp>
#include <parx/nn/detail/walk.hpp>
#include <parx/nn/element_types.hpp>
#include <parx/nn/module.hpp>
#include <parx/nn/module_functions.hpp>

namespace parx::inline PARX_ABI::nn {

/// T: the type of parameters(). Types: those of all its parameters and buffers. Borrows the module,
/// which must not move.
template <typename T, typename Types = types<T, std::int64_t>>
class any_module : public module_functions<any_module<T, Types>> {
 public:
  using value_type = T;

  template <module_type Module>
  explicit any_module(Module& of) noexcept
      : state_(&of), walk_([](detail::module_state& module, detail::walker& walk) {
          walk.start(static_cast<Module&>(module));
        }) {
    if constexpr (requires(Module& module) { module.gradient_checkpointing_enable(); }) {
      recompute_ = [](detail::module_state& module) {
        static_cast<Module&>(module).gradient_checkpointing_enable();
      };
    }
  }

  [[nodiscard]] bool is_training() const noexcept { return state_->is_training(); }
  /// As those of the module (detail/module_state.hpp).
  [[nodiscard]] std::uint64_t last_seed() const noexcept { return state_->last_seed(); }
  [[nodiscard]] std::shared_ptr<const std::uint64_t> watch_seed() { return state_->watch_seed(); }
  [[nodiscard]] std::shared_ptr<const std::string> pin(std::string borrower) {
    return state_->pin(std::move(borrower));
  }
  /// Throws usage_error for a model that has no such function.
  void gradient_checkpointing_enable() {
    require(recompute_ != nullptr,
            "this model has no layers that can be computed again in backward: it has no "
            "gradient_checkpointing_enable(). Wrap its layers in nn::checkpointed instead, see "
            "nn/checkpointed.hpp");
    recompute_(*state_);
  }

 private:
  friend class module_functions<any_module>;

  detail::module_state& state() noexcept { return *state_; }
  static Types element_types() { return {}; }
  static std::type_identity<T> own_type() { return {}; }
  void walk_parts(detail::module_visitor& visitor, detail::visited what) {
    detail::walker walk(visitor, what);
    walk_(*state_, walk);
  }

  detail::module_state* state_;
  void (*walk_)(detail::module_state&, detail::walker&);
  void (*recompute_)(detail::module_state&) = nullptr;
};

/// The handle that fits a module.
template <module_type Module>
using any_module_of = any_module<typename value_type_or_float<Module>::type,
                                 typename detail::element_types_of<Module>::type>;

}  // namespace parx::nn
