// model_block: one piece of a forward pass, for wrappers that cut a model into stages.
//
// A model that can be cut has blocks(): its forward pass as a list of functions, each from the
// result of the one before. All see the batch's input as well: the first makes its result of it
// alone, and others may need a mask. A block may also take the results of blocks further ahead
// (skip connections). Blocks refer to the model, which must not move.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/variable.hpp>

namespace parx::inline PARX_ABI::nn {

/// What a block gets: the result of the block before, undefined for the first one, and those of the
/// blocks that it takes.
template <typename T>
class block_input : public variable<T> {
 public:
  block_input(variable<T> before,  // NOLINT(google-explicit-constructor): most take nothing else
              std::vector<variable<T>> taken = {})
      : variable<T>(std::move(before)), taken_(std::move(taken)) {}
  /// In the order of model_block::takes.
  [[nodiscard]] const variable<T>& taken(std::size_t i) const { return taken_.at(i); }

 private:
  std::vector<variable<T>> taken_;
};

template <typename Input, typename T = float>
struct model_block {
  using input_type = Input;
  using value_type = T;

  std::string name;
  /// Paths of the modules or parameters that it uses. What several blocks name is tied.
  std::vector<std::string> parts;
  std::function<variable<T>(const block_input<T>& x, const Input& input)> forward;
  /// Names of earlier blocks whose results it takes besides: x.taken(0), ...
  std::vector<std::string> takes{};
  /// False where it never looks at `input`: a stage of such blocks alone needs no batch.
  bool reads_input = true;
};

template <typename Input, typename T = float>
using model_blocks = std::vector<model_block<Input, T>>;

}  // namespace parx::nn
