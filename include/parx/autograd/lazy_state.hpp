// lazy_state: state of parameters that has memory only once it is needed: an optimizer's, which
// makes the moments of a parameter with its first step.
//
// A class that derives from it has, besides for_each_placed_state, for_each_lazy_state(visitor),
// which calls visitor(name, tensor or number, part) too, but with a lazy_tensor for each tensor. So
// saving makes nothing, and loading makes only what is in the file.
#pragma once

#include <functional>
#include <string>

#include <parx/autograd/parameter_handle.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

struct lazy_state : placed_state {};

/// Valid while the state lives.
template <typename T>
struct lazy_tensor {
  using value_type = T;

  bool is_made = false;
  std::function<tensor<T>&()> make;  ///< makes it, all zero, if it is not made
  std::function<void()> drop;        ///< it has no memory again
  /// A file may lack the tensor where it has 0 for the number of this name; empty: in any case.
  std::string counter;
};

template <typename Value>
inline constexpr bool is_lazy_tensor = false;
template <typename T>
inline constexpr bool is_lazy_tensor<lazy_tensor<T>> = true;

}  // namespace parx
