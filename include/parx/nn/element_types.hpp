// element_types: the types of the values that a module holds.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <parx/autograd/parameter.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/detail/module_visitor.hpp>

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

}  // namespace parx::nn
