// dataset: what a loader needs from a source of samples, and the batch it makes of them.
//
// A data set has a size and turns a list of indices into one batch. It fetches by batch, not by
// sample, because that is where the memory is laid out once and filled in one pass. fetch() is
// const and called from several threads at a time. One of your own, with two inputs and a number to
// predict:
//
//   struct houses {
//     struct batch {  // anything that can be moved and has weights
//       parx::tensor<float> rooms, place, price;
//       parx::tensor<float> weights;                       // left empty: they come from the loader
//       std::size_t size() const { return price.size(); }  // asked by the trainer alone
//     };
//     std::size_t size() const;                              // samples of all ranks
//     batch fetch(std::span<const std::size_t> rows) const;  // their tensors, [rows.size(), ...]
//   };
//
// The loader deals out which rows, to this rank and in which order; the loss takes the batch's
// weights as row_weights, since the samples that fill a last batch up have weight 0.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::data {

/// Samples with class labels. `x` is [n, ...], `y` and `weights` are [n]; a weight of 0 marks a
/// sample that only fills the batch up and must not count: `cross_entropy(model(x), y, weights)`.
struct batch {
  tensor<float> x;
  tensor<std::int64_t> y;
  tensor<float> weights;

  /// Samples in the batch, padding included.
  [[nodiscard]] std::size_t size() const noexcept { return y.size(); }
  /// Samples that count: the sum of the weights.
  [[nodiscard]] float count() const {
    return std::accumulate(weights.begin(), weights.end(), 0.0F);
  }
};

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

/// Stands for a class that is no data set where a loader is made of one: the sentence that a failed
/// constraint does not find.
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

/// Samples that are in memory already: x is [n, ...], y is [n]; refers to both, copies neither.
class tensor_dataset {
 public:
  /// Throws usage_error unless x and y have the same first extent.
  tensor_dataset(tensor<float> x, tensor<std::int64_t> y) : x_(x.contiguous()), y_(y.contiguous()) {
    require(
        x.rank() >= 1 && y.rank() == 1 && x.extent(0) == y.extent(0),
        "tensor_dataset: x of shape {} and y of shape {} do not have the same number of samples",
        to_string(x.shape()), to_string(y.shape()));
  }

  [[nodiscard]] std::size_t size() const noexcept { return y_.size(); }

  [[nodiscard]] batch fetch(std::span<const std::size_t> indices) const {
    shape rows = x_.shape();
    rows[0] = indices.size();
    batch result{tensor<float>::empty(rows), tensor<std::int64_t>::empty({indices.size()}), {}};
    const std::size_t width = size() == 0 ? 0 : x_.size() / size();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      require(indices[i] < size(), "sample {} does not exist in a data set of {}", indices[i],
              size());
      std::copy_n(x_.data() + indices[i] * width, width, result.x.data() + i * width);
      result.y.data()[i] = y_.data()[indices[i]];
    }
    return result;
  }

  [[nodiscard]] const tensor<float>& x() const noexcept { return x_; }
  [[nodiscard]] const tensor<std::int64_t>& y() const noexcept { return y_; }

 private:
  tensor<float> x_;
  tensor<std::int64_t> y_;
};

}  // namespace parx::data
