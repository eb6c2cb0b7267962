// Losses, as (sum, count), and accuracy in the same form.
//
//   auto loss = parx::nn::cross_entropy(model(batch.x), batch.y, {.row_weights = batch.weights});
//   auto loss = parx::nn::mse_loss(model(batch.x), targets, {.row_weights = batch.weights});
//
// With many classes, logits take more memory than all else: see nn/linear_cross_entropy.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <parx/autograd/ops/loss.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/reduction.hpp>

namespace parx::inline PARX_ABI::nn {

using parx::cross_entropy;

struct mse_loss_options {
  std::span<const float> row_weights = {};  ///< one per row (axis 0); empty: all 1. 0 for padding.
};

/// The squared differences of `prediction` and `target` (a tensor or a variable of the same shape),
/// summed over the rows with their weights; the count is the number of elements, by the same
/// weights. mean() is PyTorch's mse_loss. Throws usage_error, with the caller's line, when the
/// shapes differ.
template <typename T>
[[nodiscard]] weighted_loss<T> mse_loss(const variable<T>& prediction,
                                        const std::type_identity_t<variable<T>>& target,
                                        const mse_loss_options& options = {},
                                        call_site site = call_site::current()) {
  return mse(prediction, target, options.row_weights, site);
}

namespace detail {

template <typename T>
void takes_target(const variable<T>&, const std::type_identity_t<variable<T>>&);
template <typename Prediction, typename Target>
concept comparable = requires(const Prediction& p, const Target& t) { takes_target(p, t); };

}  // namespace detail

/// For other arguments: a compile-time error that says what to do.
template <typename Prediction, typename Target>
  requires(!detail::comparable<Prediction, Target>)
weighted_loss<float> mse_loss(const Prediction&, const Target&, mse_loss_options = {}) {
  constexpr bool is_variable = detail::comparable<Prediction, Prediction>;
  static_assert(is_variable,
                "the prediction is what a model returns, a variable: "
                "parx::variable<float>(tensor)");
  static_assert(!is_variable,
                "the target is a tensor or variable of the prediction's type: "
                "tensor<float>::from(values, {n, 1}); classes are for cross_entropy");
  return {};
}

/// A mean as (sum, count): batches and ranks are added up and divided once.
///
///   parx::nn::tally total;                                     // of a held-out set
///   for (auto& batch : batches) total += parx::nn::accuracy(model(batch.x), batch.y);
///   const double of_all = parx::global_mean(world, total);     // over all ranks
struct tally {
  double sum = 0;
  double count = 0;

  /// 0 when nothing was counted.
  [[nodiscard]] double mean() const noexcept { return count == 0 ? 0 : sum / count; }
  tally& operator+=(const tally& other) noexcept {
    sum += other.sum;
    count += other.count;
    return *this;
  }
  /// Adds a loss's value, without its gradient.
  template <typename T>
  tally& operator+=(const weighted_loss<T>& loss) {
    return *this += tally{static_cast<double>(loss.sum.item()), loss.count};
  }
};

/// How many rows of `logits` (..., classes) have their largest value at `labels` (...). Rows of
/// weight 0 and rows with the label `ignore_index` do not count, as in cross_entropy. Collective
/// where logits are cut by classes over ranks, with the same result on all of them. Throws
/// usage_error, with the caller's line, for shapes that do not fit.
template <typename T, std::integral Label>
[[nodiscard]] tally accuracy(const tensor<T>& logits, const tensor<Label>& labels,
                             const cross_entropy_options& options = {},
                             call_site site = call_site::current()) {
  const tensor<std::int64_t> answers = parx::argmax_for("accuracy", logits, site);
  require(answers.shape() == labels.shape(),
          "accuracy at {}: logits of shape {} need labels of the same shape without the last axis, "
          "not {}",
          site, to_string(logits.shape()), to_string(labels.shape()));
  require(options.row_weights.empty() || options.row_weights.size() == labels.size(),
          "accuracy at {}: {} row weights for {} rows", site, options.row_weights.size(),
          labels.size());
  const tensor<Label> wanted = labels.contiguous();
  tally result;
  for (std::size_t row = 0; row < wanted.size(); ++row) {
    const auto label = static_cast<std::int64_t>(wanted.data()[row]);
    if (label == options.ignore_index) continue;
    const double weight =
        options.row_weights.empty() ? 1.0 : static_cast<double>(options.row_weights[row]);
    result.count += weight;
    if (answers.data()[row] == label) result.sum += weight;
  }
  return result;
}
template <typename T, std::integral Label>
[[nodiscard]] tally accuracy(const variable<T>& logits, const tensor<Label>& labels,
                             const cross_entropy_options& options = {},
                             call_site site = call_site::current()) {
  return accuracy(logits.value(), labels, options, site);
}

}  // namespace parx::nn

template <std::same_as<parx::nn::tally> Tally>
struct fmt::formatter<Tally> : parx::unprinted_loss<Tally> {};
