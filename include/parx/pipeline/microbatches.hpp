// microbatches: the micro-batches of one step or evaluation, without their type: what runs them is
// compiled once for all models, batches and criteria.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <parx/autograd/loss.hpp>
#include <parx/autograd/variable.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>
#include <parx/nn/loss.hpp>
#include <parx/nn/model_input.hpp>
#include <parx/tensor/batch.hpp>

namespace parx::inline PARX_ABI {

/// What a criterion has made of one micro-batch.
template <typename T>
struct microbatch_result {
  nn::tally figure;
  /// What backward starts from; nothing in an evaluation.
  std::optional<weighted_loss<T>> loss{};
};

/// The functions are borrowed.
template <typename T>
struct microbatches {
  std::size_t count;
  /// Calls use with what the model's forward takes of the micro-batch.
  function_ref<void(std::size_t, function_ref<void(const any_input&)> use)> with_input;
  /// Whether this rank has samples of the micro-batch.
  function_ref<bool(std::size_t)> has_samples;
  /// Called with the model's result, on the ranks that have it.
  function_ref<microbatch_result<T>(std::size_t, const variable<T>&)> result;
  call_site site;  ///< of the step or the evaluation
};

/// use(microbatches<T>) for the parts of a batch and what is made of each result: result(i, x).
template <typename T, typename Input, typename Batch, typename Result, typename Use>
nn::tally with_microbatches(std::span<const Batch> parts, call_site site, const Result& result,
                            const Use& use) {
  const auto with_input = [&](std::size_t i, function_ref<void(const any_input&)> take) {
    const Input input = input_of<Input>(parts[i]);
    take(any_input(input));
  };
  const auto holds = [&](std::size_t i) { return has_samples(parts[i]); };
  return use(microbatches<T>{parts.size(), with_input, holds, result, site});
}

/// The result of a criterion, which returns a weighted_loss, or in an evaluation also a tally.
template <typename T, typename Made>
[[nodiscard]] microbatch_result<T> result_of(Made made) {
  if constexpr (std::is_same_v<Made, weighted_loss<T>>) {
    require_counted(static_cast<double>(made.sum.item()), made.count);
    return {{static_cast<double>(made.sum.item()), made.count}, std::move(made)};
  } else {
    static_assert(std::is_convertible_v<Made, nn::tally>,
                  "a criterion returns (sum, count): return parx::nn::cross_entropy(logits, "
                  "batch.labels), or parx::nn::accuracy(logits, batch.labels) in an evaluation");
    return {nn::tally(made)};
  }
}

}  // namespace parx
