// model_block: one piece of a forward pass, for wrappers that cut a model into stages.
//
// A model that can be cut has blocks(): its forward pass as a list of functions, each from the
// result of the one before. All see the batch's input as well: the first makes its result of it
// alone, and others may need a mask. Blocks refer to the model, which must not move.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <parx/autograd/variable.hpp>

namespace parx::inline PARX_ABI::nn {

template <typename Input, typename T = float>
struct model_block {
  using input_type = Input;
  using value_type = T;

  std::string name;
  /// Paths of the modules or parameters that it uses. What several blocks name is tied.
  std::vector<std::string> parts;
  std::function<variable<T>(const variable<T>& x, const Input& input)> forward;
};

template <typename Input, typename T = float>
using model_blocks = std::vector<model_block<Input, T>>;

}  // namespace parx::nn
