// module: the base class of layers and models.
//
//   class classifier : public parx::nn::module<classifier> {
//    public:
//     auto forward(const parx::variable<float>& x) { return second_(parx::relu(first_(x))); }
//     template <typename Visit>
//     void members(Visit& visit) {
//       visit("first", first_);
//       visit("second", second_);
//     }
//    private:
//     parx::nn::linear<> first_{784, 128};
//     parx::nn::linear<> second_{128, 10};
//   };
//
// members() lists a model's parameters, buffers (not trained), submodules, and ranges of these.
// Paths, initialisation, optimizers, checkpoints and wrappers all use this list. Calling a module
// like a function calls forward().
//
// A new model has shapes but no values, so it may be larger than the memory. for_each_parameter()
// (names and shapes), parameter_count(), freeze() and train() need no values. Values come from
// initialize(seed), a checkpoint, or a wrapper's memory; parameters that are still without values
// get those of seed 0 at the first call, in parameters(), or under a ddp. Modules move but do not
// copy, because a copy would share its parameters. A model belongs to one thread at a time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <parx/autograd/anomaly.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/core/error.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/nn/detail/module_state.hpp>
#include <parx/nn/detail/parts.hpp>
#include <parx/nn/detail/walk.hpp>
#include <parx/nn/module_view.hpp>
#include <parx/nn/training_modes.hpp>

namespace parx::inline PARX_ABI::nn {

template <typename T>
concept has_value_type = requires {
  typename T::value_type;
};
/// `type` is the type of a module's values: its value_type if it names one, else float.
template <typename T>
struct value_type_or_float {
  using type = float;
};
template <has_value_type T>
struct value_type_or_float<T> {
  using type = typename T::value_type;
};

namespace detail {

/// Floating-point tensors become constants of the graph; everything else passes through.
template <typename Input>
[[nodiscard]] const Input& as_input(const Input& input) noexcept {
  return input;
}
template <std::floating_point T>
[[nodiscard]] variable<T> as_input(const tensor<T>& input) {
  return input;
}

}  // namespace detail

/// A list of element types. A model whose parameters or buffers have others than its value_type (or
/// float) and std::int64_t names all of them: using element_types = parx::nn::types<float, double>.
template <typename... Types>
struct types {};

namespace detail {

template <typename M>
struct element_types_of {
  using type = types<typename value_type_or_float<M>::type, std::int64_t>;
};
template <typename M>
requires requires { typename M::element_types; }
struct element_types_of<M> {
  using type = typename M::element_types;
};

/// All of `Found`, and those of the other lists that are not among them.
template <typename Found, typename... Lists>
struct all_types {
  using type = Found;
};
template <typename... Found, typename... Lists>
struct all_types<types<Found...>, types<>, Lists...> : all_types<types<Found...>, Lists...> {};
template <typename... Found, typename T, typename... More, typename... Lists>
struct all_types<types<Found...>, types<T, More...>, Lists...>
    : all_types<std::conditional_t<(... || std::is_same_v<T, Found>), types<Found...>,
                                   types<Found..., T>>,
                types<More...>, Lists...> {};

/// use(handle), with the type that the handle has.
template <template <typename> typename Handle, typename Use, typename... Types>
void use_handle(const any_handle& held, const std::string& path, types<Types...>, const Use& use) {
  const auto is_used = [&]<typename T>() {
    if constexpr (!std::is_same_v<Handle<T>, parameter<std::int64_t>>) {
      if (auto* const typed = held.as<Handle, T>()) {
        use(*typed);
        return true;
      }
    }
    return false;
  };
  if (!(... || is_used.template operator()<Types>())) {
    throw_usage(
        "\"{}\" has elements of a type that its model does not name. In the model's class, list "
        "all of them, as in using element_types = parx::nn::types<float, double>",
        path);
  }
}

}  // namespace detail

template <typename M>
concept module_type = std::derived_from<M, detail::module_state>;

template <typename Derived>
class module : public detail::module_state {
 public:
  module() = default;

  /// Calls forward(inputs...).
  template <typename... Inputs>
  auto operator()(const Inputs&... inputs) {
    materialize();
    std::optional<parx::watched_module> named;
    if (auto* const watch = parx::anomaly_watch::current()) {
      if (!watch->in_module()) name_modules(*watch);
      named.emplace(*watch, static_cast<detail::module_state*>(this));
    }
    const hooked_call hooked(this->hook());
    if constexpr (requires { self().forward(detail::as_input(inputs)...); }) {
      return hooked.result_of([&] { return self().forward(detail::as_input(inputs)...); });
    } else {  // forward() takes tensors
      return hooked.result_of([&] { return self().forward(inputs...); });
    }
  }

  /// Gives all parameters their initial values, a function of (seed, path, index of the element),
  /// and seeds the random layers. Overwrites existing values: load a checkpoint afterwards.
  void initialize(std::uint64_t seed) { prepare(seed, detail::fill::all); }

  /// Gives parameters without values those of initialize(0).
  void materialize() {
    if (!ready_) prepare(0, detail::fill::missing);
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
    this->note_noise_seed(seed);
    walk_parts(detail::noise_seeding(seed));
  }

  /// Gives each replica of a model different random numbers for the same seed, since replicas work
  /// on different samples. Stays until the next call; initially 0. A ddp sets the rank.
  void set_replica(std::uint64_t replica) { walk_parts(detail::replica_setting(replica)); }
  /// For several replicas that are computed in turns: begin_replicas() before the first,
  /// next_replica(number) before each, or each piece of its forward pass, and end_replicas() after
  /// the last. A replica draws what it would draw on a rank of its own.
  void begin_replicas() { walk_parts(detail::replicas_beginning()); }
  void next_replica(std::uint64_t replica) { walk_parts(detail::replica_turn(replica)); }
  void end_replicas() { walk_parts(detail::replicas_ending()); }

  /// Calls visitor(path, parameter<T>&) once for each parameter, in the order of members(). The
  /// path, a std::string, is relative to this module. Creates no values.
  template <typename Visitor>
  void for_each_parameter(Visitor&& visitor) {
    walk_parameters(detail::visited::parameters,
                    [&](const std::string& path, auto& parameter, const initializer&) {
                      if (!ready_) parameter.rename(path);
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
    walk_parts(detail::buffer_visits([&](const std::string& path, const detail::any_handle& held) {
      detail::use_handle<model_buffer>(held, path, element_types(),
                                       [&](auto& buffer) { visitor(path, buffer); });
    }));
  }

  /// Calls visitor(path, module_view) for this module, whose path is empty, and all its submodules,
  /// parents before children: PyTorch's named_modules.
  void for_each_module(
      function_ref<void(const std::string& path, const module_view& module)> visitor) {
    walk_parts(detail::module_visits(visitor));
  }

  /// Handles of all parameters, for an optimizer. Creates missing values. T defaults to the
  /// module's element type; a model with several element types needs for_each_parameter.
  template <typename T = void>
  [[nodiscard]] auto parameters(call_site site = call_site::current()) {
    using value =
        std::conditional_t<std::is_void_v<T>, typename value_type_or_float<Derived>::type, T>;
    materialize();
    parameter_list<value> all(site);
    for_each_parameter([&](const std::string&, auto& p) { all.push_back(p); });
    return all;
  }

  /// The number of elements of all parameters, including parts on other ranks.
  [[nodiscard]] std::size_t parameter_count() {
    detail::parameter_counting counting;
    walk_parts(counting);
    return counting.count;
  }

  /// Sets training mode (the default) or evaluation mode in this module and all its submodules.
  void train() { walk_parts(detail::training_setting(true)); }
  void eval() { walk_parts(detail::training_setting(false)); }
  /// Which modules are in training mode; restore() of the result restores it.
  [[nodiscard]] nn::training_modes training_modes() {
    nn::training_modes saved;
    walk_parts(nn::training_modes::saving(saved));
    return saved;
  }

  /// From the next forward pass on the parameters are constants, or get gradients again: PyTorch's
  /// requires_grad_. Under a wrapper, call them on all ranks, before a forward pass.
  void freeze() { for_each(&detail::any_parameter::freeze); }
  void unfreeze() { for_each(&detail::any_parameter::unfreeze); }

  /// The next backward overwrites the gradients.
  void zero_grad() { for_each(&detail::any_parameter::zero_grad); }

  /// The default, for modules without members.
  template <typename Visit>
  void members(Visit& /*visit*/) {}

 private:
  Derived& self() noexcept { return static_cast<Derived&>(*this); }
  static auto element_types() { return typename detail::element_types_of<Derived>::type(); }

  [[gnu::noinline]] void walk_parts(detail::part_visitor& visitor, detail::visited what) {
    detail::walker(visitor, what).start(self());
  }
  template <typename Visitor>
  void walk_parts(Visitor&& visitor) {
    walk_parts(visitor, detail::visited::parameters);
  }
  [[nodiscard]] detail::names_in_files names_in_files() {
    detail::names_in_files names;
    walk_parts(names, detail::visited::all_names);
    return names;
  }
  template <typename Visitor>
  void walk_parameters(detail::visited what, const Visitor& visitor) {
    const auto visit = [&](const std::string& path, const detail::any_parameter& held,
                           const initializer& start) {
      detail::use_handle<parameter>(held, path, element_types(),
                                    [&](auto& typed) { visitor(path, typed, start); });
    };
    detail::parameter_visits visits(visit);
    walk_parts(visits, what);
  }
  void for_each(void (detail::any_parameter::*function)() const) {
    walk_parts(detail::parameter_calls(function));
  }

  /// For detect_anomaly; the outermost module of a call does it.
  void name_modules(parx::anomaly_watch& watch) { walk_parts(detail::module_naming(watch)); }

  /// Names all parameters by their path relative to this module, and creates initial values.
  void prepare(std::uint64_t seed, detail::fill which,
               const detail::initial_values::filter& wanted = {}) {
    this->note_seed(seed);
    walk_parts(detail::initial_values(seed, which, wanted));
    walk_parts(detail::readiness(seed, which));
  }
};

}  // namespace parx::nn
