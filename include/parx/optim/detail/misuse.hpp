// misuse: compile-time messages for wrong arguments of an optimizer's constructor: a model, a bare
// learning rate. An optimizer has one constructor for all other arguments, which calls
// explain_no_update_list().
#pragma once

#include <concepts>
#include <type_traits>
#include <vector>

#include <parx/autograd/parameter_list.hpp>
#include <parx/optim/group.hpp>
#include <parx/optim/target.hpp>

namespace parx::inline PARX_ABI::optim::detail {

/// Whether an optimizer with these options can be made of a List.
template <typename List, typename Options>
inline constexpr bool is_update_list = false;
template <typename T, typename Options>
inline constexpr bool is_update_list<std::vector<parameter<T>>, Options> = true;
template <typename T, typename Options>
inline constexpr bool is_update_list<parameter_list<T>, Options> = true;
template <typename T, typename Options>
inline constexpr bool is_update_list<std::vector<target<T>>, Options> = true;
template <typename T, typename Options>
inline constexpr bool is_update_list<std::vector<parameter_group<T, Options>>, Options> = true;

/// Wrong arguments of an optimizer whose options are `Plain`.
template <typename List, typename Options, typename Plain>
concept no_update_list = !is_update_list<List, Plain> || !std::same_as<Options, Plain>;

/// Never compiles; its message says why.
template <typename List, typename Options, typename Plain>
constexpr void explain_no_update_list() {
  constexpr bool is_list = is_update_list<List, Plain>;
  constexpr bool is_model = requires(List& model) { model.parameters(); };
  constexpr bool is_number = std::is_arithmetic_v<Options>;
  static_assert(is_list || !is_model,
                "an optimizer takes the parameters of a model, not the model: "
                "adamw{model.parameters(), {.lr = 1e-3}}");
  static_assert(is_list || is_model,
                "an optimizer takes what it updates, with options of its own: model.parameters(), "
                "parameter groups or a vector of optim::target");
  static_assert(!is_list || !is_number, "the learning rate is one of the options: {.lr = 1e-3}");
  static_assert(!is_list || is_number || std::is_same_v<Options, Plain>,
                "these options are another optimizer's: write them in braces, {.lr = 1e-3}");
}

}  // namespace parx::optim::detail
