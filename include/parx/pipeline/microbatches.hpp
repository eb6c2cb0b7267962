// microbatches: the micro-batches of one step or evaluation, without their type: what runs them is
// compiled once for a model, not once for each batch and criterion.
#pragma once

#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

#include <parx/autograd/loss.hpp>
#include <parx/autograd/variable.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/nn/loss.hpp>

namespace parx::inline PARX_ABI {

/// What a criterion has made of one micro-batch.
template <typename T>
struct microbatch_result {
  nn::tally figure;
  /// What backward starts from; nothing in an evaluation.
  std::optional<weighted_loss<T>> loss{};
};

/// Input: what the model's forward takes. The functions are borrowed.
template <typename Input, typename T>
struct microbatches {
  std::size_t count;
  function_ref<Input(std::size_t)> input;
  /// Whether this rank has samples of the micro-batch.
  function_ref<bool(std::size_t)> has_samples;
  /// Called with the model's result, on the ranks that have it.
  function_ref<microbatch_result<T>(std::size_t, const variable<T>&)> result;
};

/// The result of a criterion, which returns a weighted_loss, or in an evaluation also a tally.
template <typename T, typename Made>
[[nodiscard]] microbatch_result<T> result_of(Made made) {
  if constexpr (std::is_same_v<Made, weighted_loss<T>>) {
    return {{static_cast<double>(made.sum.item()), made.count}, std::move(made)};
  } else {
    static_assert(std::is_convertible_v<Made, nn::tally>,
                  "a criterion returns (sum, count): return parx::nn::cross_entropy(logits, "
                  "batch.labels), or parx::nn::accuracy(logits, batch.labels) in an evaluation");
    return {nn::tally(made)};
  }
}

}  // namespace parx
