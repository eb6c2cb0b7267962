// module_functions: what can be done with the parameters, buffers and parts of a module, whatever
// its type. A module has these functions (module.hpp), and so has a handle of one (any_module.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include <parx/autograd/parameter_list.hpp>
#include <parx/core/check.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>
#include <parx/nn/detail/module_state.hpp>
#include <parx/nn/detail/parts.hpp>
#include <parx/nn/detail/walk.hpp>
#include <parx/nn/element_types.hpp>
#include <parx/nn/module_view.hpp>
#include <parx/nn/training_modes.hpp>

namespace parx::inline PARX_ABI::nn {

/// Self derives from it and has, for this class alone:
///   detail::module_state& state();
///   void walk_parts(detail::module_visitor&, detail::visited);   // of the module and its parts
///   static types<...> element_types();                         // of parameters and buffers
///   static std::type_identity<...> own_type();                 // that of parameters()
template <typename Self>
class module_functions {
 public:
  /// Gives all parameters their initial values, a function of (seed, path, index of the element),
  /// and seeds the random layers. Overwrites existing values: load a checkpoint afterwards.
  void initialize(std::uint64_t seed) { prepare(seed, detail::fill::all); }

  /// Gives parameters without values those of initialize(0).
  void materialize() {
    if (!state().ready_) prepare(0, detail::fill::missing);
  }

  /// materialize(), from `seed`, for the parameters whose path wanted() accepts. The others stay as
  /// they are, for a wrapper that keeps a part of the model on each rank.
  void materialize_where(const std::function<bool(const std::string& path)>& wanted,
                         std::uint64_t seed = 0) {
    prepare(seed, detail::fill::missing, wanted);
  }

  /// Restarts the random numbers of the random layers (dropout). A resumed run passes a seed that
  /// it has not used before.
  void reseed(std::uint64_t seed) {
    materialize();
    state().note_noise_seed(seed);
    walk(detail::noise_seeding(seed));
  }

  /// Gives each replica of a model different random numbers for the same seed, since replicas work
  /// on different samples. Stays until the next call; initially 0. A ddp sets the rank.
  void set_replica(std::uint64_t replica) { walk(detail::replica_setting(replica)); }
  /// For several replicas that are computed in turns: begin_replicas() before the first,
  /// next_replica(number) before each, or each piece of its forward pass, and end_replicas() after
  /// the last. A replica draws what it would draw on a rank of its own.
  void begin_replicas() { walk(detail::replicas_beginning()); }
  void next_replica(std::uint64_t replica) { walk(detail::replica_turn(replica)); }
  void end_replicas() { walk(detail::replicas_ending()); }

  /// Calls visitor(path, parameter<T>&) once for each parameter, in the order of members(). The
  /// path, a std::string, is relative to this module. Creates no values.
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    walk_parameters(detail::visited::parameters,
                    [&](const std::string& path, auto& parameter, const initializer&) {
                      if (!state().ready_) parameter.rename(path);
                      visitor(path, parameter);
                    });
  }

  /// Calls visitor(path, parameter<T>&, initializer) for each path of each parameter: a parameter
  /// that several modules share has several paths. Creates no values.
  template <typename Visitor>
  void for_each_parameter_path(Visitor&& visitor) {
    walk_parameters(detail::visited::all_paths, visitor);
  }

  /// Calls visitor(other, path) for the other names that files may have for the parameter `path`:
  /// its other paths where several modules share it, and those that members() tells by
  /// visit.other_name("lm_head", embedding_) and visit.optional_prefix("transformer"). Creates no
  /// values.
  void for_each_other_name(
      const std::function<void(const std::string& other, const std::string& path)>& visitor) {
    names_in_files().for_each_other(visitor);
  }
  /// Calls visitor(name) for the tensors that files of other programs may have beside the
  /// parameters, and that no model needs, as members() tells by visit.constant_name("attn.bias").
  void for_each_constant_name(const std::function<void(const std::string& name)>& visitor) {
    names_in_files().for_each_constant(visitor);
  }

  /// Calls visitor(path, model_buffer<T>&) for each buffer, in the order of members().
  template <typename Visitor>
  void for_each_buffer(Visitor&& visitor) {
    walk(detail::buffer_visits([&](const std::string& path, const detail::any_handle& held) {
      detail::use_handle<model_buffer>(held, path, Self::element_types(),
                                       [&](auto& buffer) { visitor(path, buffer); });
    }));
  }

  /// Calls visitor(path, module_view) for this module, whose path is empty, and all its submodules,
  /// parents before children: PyTorch's named_modules.
  void for_each_module(
      function_ref<void(const std::string& path, const module_view& module)> visitor) {
    walk(detail::module_visits(visitor));
  }

  /// Handles of all parameters, for an optimizer. Creates missing values. T defaults to the
  /// module's element type. Throws usage_error for a model with several element types, which needs
  /// for_each_parameter.
  template <typename T = void>
  [[nodiscard]] auto parameters(call_site site = call_site::current()) {
    using own = typename decltype(Self::own_type())::type;
    using value = std::conditional_t<std::is_void_v<T>, own, T>;
    materialize();
    parameter_list<value> all(site);
    for_each_parameter([&all, &site](const std::string& path, auto& p) {
      if constexpr (std::is_same_v<decltype(p), parameter<value>&>) {
        static_cast<void>(site), static_cast<void>(path);
        all.push_back(p);
      } else {
        throw_usage("parameters at {}: \"{}\" has other elements than the model; "
                    "for_each_parameter visits all",
                    site, path);
      }
    });
    return all;
  }

  /// The number of elements of all parameters, including parts on other ranks.
  [[nodiscard]] std::size_t parameter_count() {
    detail::parameter_counting counting;
    walk(counting);
    return counting.count;
  }

  /// Sets training mode (the default) or evaluation mode in this module and all its submodules.
  void train() { walk(detail::training_setting(true)); }
  void eval() { walk(detail::training_setting(false)); }
  /// Which modules are in training mode; restore() of the result restores it.
  [[nodiscard]] nn::training_modes training_modes() {
    nn::training_modes saved;
    walk(nn::training_modes::saving(saved));
    return saved;
  }

  /// From the next forward pass on the parameters are constants, or get gradients again: PyTorch's
  /// requires_grad_. Under a wrapper, call them on all ranks, before a forward pass.
  void freeze() { for_each(&detail::any_parameter::freeze); }
  void unfreeze() { for_each(&detail::any_parameter::unfreeze); }

  /// The next backward overwrites the gradients.
  void zero_grad() { for_each(&detail::any_parameter::zero_grad); }

 protected:
  module_functions() = default;
  ~module_functions() = default;

 private:
  [[nodiscard]] detail::module_state& state() noexcept { return self().state(); }
  [[nodiscard]] Self& self() noexcept { return static_cast<Self&>(*this); }

  template <typename Visitor>
  void walk(Visitor&& visitor, detail::visited what = detail::visited::parameters) {
    self().walk_parts(visitor, what);
  }
  [[nodiscard]] detail::names_in_files names_in_files() {
    detail::names_in_files names;
    walk(names, detail::visited::all_names);
    return names;
  }
  template <typename Visitor>
  void walk_parameters(detail::visited what, const Visitor& visitor) {
    const auto visit = [&](const std::string& path, const detail::any_parameter& held,
                           const initializer& start) {
      detail::use_handle<parameter>(held, path, Self::element_types(),
                                    [&](auto& typed) { visitor(path, typed, start); });
    };
    detail::parameter_visits visits(visit);
    walk(visits, what);
  }
  void for_each(void (detail::any_parameter::*function)() const) {
    walk(detail::parameter_calls(function));
  }

  /// Names all parameters by their path relative to this module, and creates initial values.
  void prepare(std::uint64_t seed, detail::fill which,
               const detail::initial_values::filter& wanted = {}) {
    state().note_seed(seed);
    walk(detail::initial_values(seed, which, wanted));
    walk(detail::readiness(seed, which));
  }
};

}  // namespace parx::nn
