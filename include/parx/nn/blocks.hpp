// model_block: one piece of a forward pass, for wrappers that cut a model into stages.
//
// A model that can be cut into stages has blocks(): its forward pass as a list of functions, each
// applied to the previous block's result. Every block also gets the batch's input: the first block
// has nothing else, others may need a mask. A block may also take the results of earlier blocks
// (skip connections). Blocks refer to the model, which must not move.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/variable.hpp>
#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI::nn {

/// The input of a block: the previous block's result, undefined for the first block, and the
/// results of model_block::takes.
template <typename T>
class block_input : public variable<T> {
 public:
  block_input(variable<T> before,  // NOLINT(google-explicit-constructor): most take nothing else
              std::vector<variable<T>> taken = {})
      : variable<T>(std::move(before)), taken_(std::move(taken)) {}
  /// In the order of model_block::takes.
  /// Throws usage_error if the block takes fewer.
  [[nodiscard]] const variable<T>& taken(std::size_t i) const {
    require(i < taken_.size(),
            "a block asks for taken({}), and takes {} results: its .takes has the names of the "
            "blocks whose results it is given",
            i, taken_.size());
    return taken_[i];
  }

 private:
  std::vector<variable<T>> taken_;
};

template <typename Input, typename T = float>
struct model_block {
  using input_type = Input;
  using value_type = T;

  std::string name;
  /// Paths of the modules or parameters that it uses. Those named by several blocks are tied; what
  /// draws random numbers (dropout) may be named by the blocks of one stage alone.
  std::vector<std::string> parts;
  std::function<variable<T>(const block_input<T>& x, const Input& input)> forward;
  /// Names of earlier blocks whose results it also takes: x.taken(0), ...
  std::vector<std::string> takes{};
  /// False where it never reads `input`: a stage with only such blocks needs no batch.
  bool reads_input = true;
};

/// What a model's blocks() returns, in the order of its forward pass.
template <typename Input, typename T = float>
using model_blocks = std::vector<model_block<Input, T>>;

}  // namespace parx::nn
