// sequential: modules one after another, called "0", "1", ... as in PyTorch.
#pragma once

#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <parx/nn/blocks.hpp>
#include <parx/nn/module.hpp>

namespace parx::inline PARX_ABI::nn {

namespace detail {

template <typename... Modules>
struct first_value_type {
  using type = float;
};
template <typename First, typename... Rest>
struct first_value_type<First, Rest...> : first_value_type<Rest...> {};
template <has_value_type First, typename... Rest>
struct first_value_type<First, Rest...> {
  using type = typename First::value_type;
};

/// Whether all are modules and rvalues; the types are those of forwarding references.
template <typename... Modules>
inline constexpr bool takes_over = (... && module_type<Modules>);

/// The input_type of the first module, else a tensor<T>.
template <typename T, typename First, typename... Others>
struct first_input {
  using type = tensor<T>;
};
template <typename T, typename First, typename... Others>
  requires requires { typename First::input_type; }
struct first_input<T, First, Others...> {
  using type = typename First::input_type;
};

/// The template argument of a sequential of wrong arguments: its messages say what is wrong.
template <typename... Others>
struct no_modules : module_state {
  static constexpr bool are_modules = (... && module_type<std::remove_cvref_t<Others>>);
  static_assert(!are_modules || takes_over<Others...>,
                "modules move but do not copy: sequential{std::move(first), std::move(second)}");
  static_assert(are_modules,
                "sequential takes modules, in their order and without names: "
                "sequential{linear{784, 128}, relu{}, linear{128, 10}}; a function of a variable "
                "goes as apply{function}, of parx/ops.hpp");
};

}  // namespace detail

template <module_type... Modules>
class sequential : public module<sequential<Modules...>> {
 public:
  using value_type = typename detail::first_value_type<Modules...>::type;
  /// What parx::parallel gives it: the input of the first module.
  using input_type = typename detail::first_input<value_type, Modules...>::type;
  using element_types =  // those of its modules
      typename detail::all_types<types<>,
                                 typename detail::element_types_of<Modules>::type...>::type;

  /// Owns the modules: sequential{linear{784, 128}, relu{}, linear{128, 10}}.
  explicit sequential(Modules... modules) : modules_(std::move(modules)...) {}

  /// The last module's result for the first one's input.
  template <typename Input>
  [[nodiscard]] auto forward(const Input& x) {
    return from<0>(x);
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit_each(visit, std::index_sequence_for<Modules...>{});
  }

  /// The forward pass in pieces: each module. The first one takes `Input`, the others variables.
  template <typename Input = input_type>
  [[nodiscard]] model_blocks<Input, value_type> blocks() {
    model_blocks<Input, value_type> all;
    add_blocks(all, std::index_sequence_for<Modules...>{});
    return all;
  }

  /// Module number I.
  template <std::size_t I>
  [[nodiscard]] auto& get() noexcept {
    return std::get<I>(modules_);
  }
  [[nodiscard]] static constexpr std::size_t size() noexcept { return sizeof...(Modules); }

 private:
  template <std::size_t I, typename Input>
  auto from(const Input& x) {
    if constexpr (I == sizeof...(Modules)) {
      return x;
    } else {
      return from<I + 1>(std::get<I>(modules_)(x));
    }
  }
  template <typename Input, std::size_t... I>
  void add_blocks(model_blocks<Input, value_type>& to, std::index_sequence<I...> /*numbers*/) {
    using values = variable<value_type>;
    (to.push_back({std::to_string(I), {std::to_string(I)},
                   [this](const values& x, const Input& input) -> values {
                     if constexpr (I == 0) {
                       return std::get<I>(modules_)(input);
                     } else {
                       return std::get<I>(modules_)(x);
                     }
                   },
                   {}, I == 0}),
     ...);
  }
  template <typename Visit, std::size_t... I>
  void visit_each(Visit& visit, std::index_sequence<I...> /*numbers*/) {
    (visit(std::to_string(I), std::get<I>(modules_)), ...);
  }

  std::tuple<Modules...> modules_;
};

/// For other arguments: a compile-time error that says what to do.
template <typename... Others>
  requires(!detail::takes_over<Others...>)
sequential(Others&&...) -> sequential<detail::no_modules<Others...>>;

}  // namespace parx::nn
