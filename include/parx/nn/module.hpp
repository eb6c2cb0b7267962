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
#include <optional>
#include <type_traits>

#include <parx/autograd/anomaly.hpp>
#include <parx/autograd/variable.hpp>
#include <parx/nn/detail/module_state.hpp>
#include <parx/nn/detail/parts.hpp>
#include <parx/nn/detail/walk.hpp>
#include <parx/nn/element_types.hpp>
#include <parx/nn/module_functions.hpp>
#include <parx/nn/module_hook.hpp>

namespace parx::inline PARX_ABI::nn {

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

template <typename M>
concept module_type = std::derived_from<M, detail::module_state>;

template <typename Derived>
class module : public detail::module_state, public module_functions<module<Derived>> {
 public:
  module() = default;

  /// Calls forward(inputs...).
  template <typename Input>
  auto operator()(const Input& input, call_site = call_site::current()) {
    return call(input);
  }
  template <typename... Inputs>
  auto operator()(const Inputs&... inputs) {
    return call(inputs...);
  }

  /// The default, for modules without data members. For others a compile-time error that says what
  /// to do: a forgotten list would train nothing.
  template <typename Visit>
  void members(Visit& /*visit*/) {
    static_assert(sizeof(Derived) == sizeof(module),
                  "a module with data members names its layers and parameters in template "
                  "<typename Visit> void members(Visit& visit) { visit(\"first\", first); }; if "
                  "nothing in it is trained, members() has an empty body");
  }

 private:
  friend class module_functions<module>;

  template <typename... Inputs>
  auto call(const Inputs&... inputs) {
    this->materialize();
    std::optional<parx::watched_module> named;
    if (auto* const watch = parx::anomaly_watch::current()) {
      if (!watch->in_module()) name_modules(*watch);
      named.emplace(*watch, static_cast<detail::module_state*>(this));
    }
    const hooked_call hooked(this->hook());
    if constexpr (requires { self().forward(detail::as_input(inputs)...); }) {
      return hooked.result_of([&] { return self().forward(detail::as_input(inputs)...); });
    } else {  // forward() takes tensors
      static_assert(
          requires { self().forward(inputs...); },
          "this layer's forward() does not take what it is called with: an embedding takes a "
          "tensor of integers, other layers a tensor or a variable of their own element type, and "
          "a layer of yours what its forward() says");
      return hooked.result_of([&] { return self().forward(inputs...); });
    }
  }

  Derived& self() noexcept { return static_cast<Derived&>(*this); }
  detail::module_state& state() noexcept { return *this; }
  static auto element_types() { return typename detail::element_types_of<Derived>::type(); }
  static auto own_type() {
    return std::type_identity<typename value_type_or_float<Derived>::type>();
  }
  [[gnu::noinline]] void walk_parts(detail::module_visitor& visitor, detail::visited what) {
    detail::walker(visitor, what).start(self());
  }

  /// For detect_anomaly; the outermost module of a call does it.
  void name_modules(parx::anomaly_watch& watch) {
    detail::module_naming naming(watch);
    walk_parts(naming, detail::visited::parameters);
  }
};

}  // namespace parx::nn
