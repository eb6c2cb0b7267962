// module_view: a module of a model, whatever its type, as for_each_module() shows it.
#pragma once

#include <cstddef>
#include <type_traits>
#include <typeinfo>

#include <parx/nn/detail/module_state.hpp>
#include <parx/nn/random_layer.hpp>

namespace parx::inline PARX_ABI::nn {

class cuttable_layer;

/// Borrows the module.
struct module_view {
  detail::module_state& module;  // modes and hooks
  const std::type_info& type;    // the module's
  /// The type of what a nn::checkpointed recomputes; else null.
  const std::type_info* recomputed = nullptr;
  /// The module as a layer that draws random numbers, or that can be cut over ranks; else null.
  random_layer* noise = nullptr;
  cuttable_layer* cut = nullptr;
  std::size_t (*count)(detail::module_state& module) = nullptr;

  template <typename Module>
  [[nodiscard]] static module_view of(Module& module);

  /// The number of elements of its parameters and of those of its modules.
  [[nodiscard]] std::size_t parameter_count() const { return count(module); }
};

template <typename Module>
module_view module_view::of(Module& module) {
  module_view view{.module = module, .type = typeid(Module)};
  if constexpr (requires { typename Module::recomputed_module; }) {
    view.recomputed = &typeid(typename Module::recomputed_module);
  }
  if constexpr (std::is_base_of_v<random_layer, Module>) view.noise = &module;
  if constexpr (std::is_base_of_v<cuttable_layer, Module>) view.cut = &module;
  view.count = [](detail::module_state& each) {
    return static_cast<Module&>(each).parameter_count();
  };
  return view;
}

}  // namespace parx::nn
