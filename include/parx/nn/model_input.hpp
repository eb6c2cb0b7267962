// model_input: the type that a model's forward pass takes, for what runs models of any kind.
//
// A model says it by `using input_type = ...`; without that it is what its blocks() take
// (blocks.hpp), else a tensor of its element type. A batch has it as itself, as its member x or
// input_ids, or, where the model takes several tensors, as what `input_type::from(batch)` makes.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/nn/element_types.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

/// The input_type of a model without a forward pass: the program computes its gradients itself.
struct no_input {};

namespace nn::detail {

template <typename Model>
[[nodiscard]] auto input_of_model() {
  if constexpr (requires { typename Model::input_type; }) {
    return std::type_identity<typename Model::input_type>();
  } else if constexpr (requires(Model & model) { model.blocks(); }) {
    using block = typename decltype(std::declval<Model&>().blocks())::value_type;
    return std::type_identity<typename block::input_type>();
  } else {
    return std::type_identity<tensor<typename value_type_or_float<Model>::type>>();
  }
}

}  // namespace nn::detail

namespace nn {

template <typename Model>
using model_input = typename decltype(nn::detail::input_of_model<Model>())::type;

}  // namespace nn

/// A model's input without its type, for what runs models of any kind: only the model looks into
/// it. Borrowed.
class any_input {
 public:
  template <typename Input>
    requires(!std::same_as<Input, any_input>)
  explicit any_input(const Input& held) noexcept
      : held_(std::addressof(held)), type_(&typeid(Input)) {}

  template <typename Input>
  [[nodiscard]] const Input& as() const {
    require(*type_ == typeid(Input), "a model was given the input of another one");
    return *static_cast<const Input*>(held_);
  }

 private:
  const void* held_;
  const std::type_info* type_;
};

namespace nn {

/// The blocks without the type of the input.
template <typename Input, typename T>
[[nodiscard]] model_blocks<any_input, T> without_type(model_blocks<Input, T> blocks) {
  model_blocks<any_input, T> all;
  for (model_block<Input, T>& each : blocks) {
    const auto forward = [of = std::move(each.forward)](const block_input<T>& x,
                                                        const any_input& input) {
      return of(x, input.as<Input>());
    };
    all.push_back({std::move(each.name), std::move(each.parts), forward, std::move(each.takes),
                   each.reads_input});
  }
  return all;
}

}  // namespace nn

/// The part of a batch that a model takes as its input.
template <typename Input, typename Batch>
[[nodiscard]] Input input_of(const Batch& batch) {
  if constexpr (std::same_as<Input, Batch>) {
    return batch;
  } else if constexpr (requires {
                         { Input::from(batch) } -> std::same_as<Input>;
                       }) {
    return Input::from(batch);
  } else if constexpr (requires {
                         { batch.x } -> std::convertible_to<const Input&>;
                       }) {
    return batch.x;
  } else {
    static_assert(
        requires {
          { batch.input_ids } -> std::convertible_to<const Input&>;
        },
        "a model's input is the batch, its member x or input_ids, of the type that its first layer "
        "takes (an embedding a tensor<int>), or what the model's input_type::from(batch) makes of "
        "it: see nn/model_input.hpp");
    return batch.input_ids;
  }
}

}  // namespace parx
