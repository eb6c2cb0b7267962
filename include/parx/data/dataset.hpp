// dataset: what a loader needs from a source of samples, and the batches of samples.
//
// A data set has a size and turns a list of indices into one batch. It fetches whole batches rather
// than samples, so that a batch's memory is allocated once and filled in one pass. fetch() is const
// and called from several threads at a time. A data set of your own, with two inputs and a number
// to predict:
//
//   struct houses {
//     struct batch {  // anything that can be moved and has weights
//       parx::tensor<float> rooms, place, price;
//       parx::tensor<float> weights;  // left empty: the loader fills them in
//     };
//     std::size_t size() const;       // samples of all ranks
//     batch fetch(std::span<const std::size_t> rows) const;  // their tensors, [rows.size(), ...]
//   };
//
// The loader decides which rows this rank fetches and in which order. Pass the batch's weights to
// the loss as row_weights, because samples that only fill up a last batch have weight 0.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI::data {

/// The number of samples that count: padding has weight 0.
[[nodiscard]] inline float sum_of_weights(const tensor<float>& weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0F);
}
/// Sets the labels of samples of weight 0 to -100, which cross_entropy ignores.
inline void ignore_weightless(const tensor<std::int64_t>& labels, const tensor<float>& weights) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights.data()[i] == 0) labels.select(0, i).fill(-100);
  }
}

/// Samples with a `Target` each. `x` is [n, ...], `y` [n, ...], `weights` [n]; a weight of 0 marks
/// a sample that only fills the batch up and must not count: {.row_weights = batch.weights}.
template <typename Target>
struct labelled_batch {
  tensor<float> x;
  tensor<Target> y;
  tensor<float> weights;

  /// Samples in the batch, padding included.
  [[nodiscard]] std::size_t size() const noexcept {
    return y.rank() == 0 ? weights.size() : y.extent(0);
  }
  /// Samples that count.
  [[nodiscard]] float count() const { return sum_of_weights(weights); }
};

/// Samples with classes: y is [n].
using batch = labelled_batch<std::int64_t>;

/// A source of samples: `size()`, and `fetch(indices)`, which returns a movable batch whose
/// `weights` the loader then fills in; where a batch has apply_weights(), it is called after that.
template <typename D>
concept dataset = requires(const D& source, std::span<const std::size_t> indices) {
  { source.size() } -> std::convertible_to<std::size_t>;
  { source.fetch(indices).weights } -> std::convertible_to<tensor<float>>;
};

/// The batch type of a data set.
template <dataset D>
using batch_of = decltype(std::declval<const D&>().fetch(std::span<const std::size_t>{}));

namespace detail {

/// The data set of a loader of a class that is not one: its message says what is missing, which
/// that of a failed constraint would not.
template <typename D>
struct no_dataset {
  static_assert(
      dataset<D>,
      "a data set has size() and fetch(std::span<const std::size_t> rows), both const, and "
      "fetch() returns a batch with a tensor<float> weights: see data/dataset.hpp");
  std::size_t size() const;
  batch fetch(std::span<const std::size_t> rows) const;
};

}  // namespace detail

/// Samples in memory: x is [n, ...], y is [n] for classes or [n, ...] for numbers to predict.
/// Shares their memory where they are contiguous.
template <typename Target = std::int64_t>
class tensor_dataset {
 public:
  /// Throws usage_error unless x and y have the same first extent.
  tensor_dataset(tensor<float> x, tensor<Target> y, call_site = call_site::current())
      : x_(x.contiguous()), y_(y.contiguous()) {
    require(
        x.rank() >= 1 && y.rank() >= 1 && x.extent(0) == y.extent(0),
        "tensor_dataset: x of shape {} and y of shape {} do not have the same number of samples",
        to_string(x.shape()), to_string(y.shape()));
  }

  /// For other arguments: a compile-time error that says what to do.
  template <typename X, typename Y>
  tensor_dataset(const X&, const Y&) {
    constexpr bool is_x = std::is_same_v<X, tensor<float>>;
    static_assert(is_x, "the samples are a tensor<float>: tensor<float>::from(x, {n, width})");
    static_assert(!is_x || std::is_void_v<Y>,
                  "the targets are a tensor: tensor<std::int64_t>::from(y, {n}) for classes, "
                  "tensor<float>::from(y, {n, 1}) for numbers to predict");
  }

  [[nodiscard]] std::size_t size() const noexcept { return y_.extent(0); }

  [[nodiscard]] labelled_batch<Target> fetch(std::span<const std::size_t> indices) const {
    return {rows_of(x_, indices), rows_of(y_, indices), {}};
  }

  [[nodiscard]] const tensor<float>& x() const noexcept { return x_; }
  [[nodiscard]] const tensor<Target>& y() const noexcept { return y_; }

 private:
  template <typename T>
  [[nodiscard]] static tensor<T> rows_of(const tensor<T>& all,
                                         std::span<const std::size_t> indices) {
    shape taken = all.shape();
    const std::size_t size = taken[0];
    taken[0] = indices.size();
    auto rows = tensor<T>::empty(taken);
    const std::size_t width = size == 0 ? 0 : all.size() / size;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      require(indices[i] < size, "sample {} does not exist in a data set of {}", indices[i], size);
      std::copy_n(all.data() + indices[i] * width, width, rows.data() + i * width);
    }
    return rows;
  }

  tensor<float> x_;
  tensor<Target> y_;
};

}  // namespace parx::data
