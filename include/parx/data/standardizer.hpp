// standardizer: columns with mean 0 and deviation 1, by the values of the training part alone.
//
//   const auto all = read_table("a.csv", {.label = "price", .missing = missing_values::nan});
//   const standardizer scale(random_split(all, {0.9, 0.1})[0]);
//   const auto scaled = scale(all);                        // a split by the same seed is the same
//   const auto later = scale(read_table("b.csv", {...}));  // by the same means and deviations
//
// x becomes (x - mean) / deviation, that of n and not of n - 1 values. Missing values (NaN) count
// for neither and become 0, the mean; so does a column of equal values. Local, and equal on all
// ranks that have the same table.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/data/dataset.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI::data {

class standardizer {
 public:
  /// Of as many columns as a file of save_state() has, for load_state().
  explicit standardizer(std::size_t columns)
      : mean_(tensor<float>::zeros({columns})), deviation_(tensor<float>::ones({columns})) {}
  /// Of the x of all samples of `training`, whose batches have x of (samples, columns). Reads them
  /// twice. Throws usage_error where there are none.
  template <dataset D>
  explicit standardizer(const D& training) : standardizer(columns_of(training)) {
    const std::size_t width = mean_.size();
    std::vector<double> sum(width), square(width);
    std::vector<std::size_t> count(width);
    for_each_row(training, [&](const float* row) {
      for (std::size_t c = 0; c < width; ++c) {
        if (std::isnan(row[c])) continue;
        sum[c] += static_cast<double>(row[c]);
        ++count[c];
      }
    });
    const auto over = [&](double total, std::size_t c) {
      return total / static_cast<double>(std::max<std::size_t>(count[c], 1));
    };
    for (std::size_t c = 0; c < width; ++c) sum[c] = over(sum[c], c);
    for_each_row(training, [&](const float* row) {
      for (std::size_t c = 0; c < width; ++c) {
        const double off = static_cast<double>(row[c]) - sum[c];
        if (!std::isnan(off)) square[c] += off * off;
      }
    });
    for (std::size_t c = 0; c < width; ++c) {
      mean_.data()[c] = static_cast<float>(sum[c]);
      const auto deviation = static_cast<float>(std::sqrt(over(square[c], c)));
      if (deviation > 0) deviation_.data()[c] = deviation;
    }
  }

  /// x is (samples, columns). Throws usage_error for another number of columns.
  [[nodiscard]] tensor<float> operator()(const tensor<float>& x) const {
    const std::size_t width = mean_.size();
    require(x.rank() == 2 && x.extent(1) == width,
            "standardizer: made of {} columns, it got x of shape {}", width, to_string(x.shape()));
    const tensor<float> scaled = x.contiguous().clone();
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      float& value = scaled.data()[i];
      const std::size_t c = i % width;
      value = std::isnan(value) ? 0.0F : (value - mean_.data()[c]) / deviation_.data()[c];
    }
    return scaled;
  }
  /// The same samples with a scaled x.
  template <typename Target>
  [[nodiscard]] tensor_dataset<Target> operator()(const tensor_dataset<Target>& samples) const {
    return {(*this)(samples.x()), samples.y()};
  }

  [[nodiscard]] const tensor<float>& mean() const noexcept { return mean_; }
  /// 1 for a column of equal values.
  [[nodiscard]] const tensor<float>& deviation() const noexcept { return deviation_; }

  /// For save_state() and load_state().
  template <typename Visitor>
  void for_each_state(Visitor&& visitor) {
    visitor(std::string("mean"), mean_);
    visitor(std::string("deviation"), deviation_);
  }

 private:
  template <typename D>
  [[nodiscard]] static std::size_t columns_of(const D& training) {
    require(training.size() > 0, "standardizer: there are no samples to take the mean of");
    const std::size_t first = 0;
    const tensor<float> x = training.fetch(std::span(&first, 1)).x;
    require(x.rank() == 2, "standardizer: a sample's x of shape {} is not (1, columns)",
            to_string(x.shape()));
    return x.extent(1);
  }
  template <typename D, typename Use>
  static void for_each_row(const D& training, Use&& use) {
    std::vector<std::size_t> rows;
    for (std::size_t at = 0; at < training.size(); at += rows.size()) {
      rows.resize(std::min<std::size_t>(4096, training.size() - at));
      std::iota(rows.begin(), rows.end(), at);
      const tensor<float> x = training.fetch(rows).x.contiguous();
      for (std::size_t i = 0; i < rows.size(); ++i) use(x.data() + i * x.extent(1));
    }
  }

  tensor<float> mean_, deviation_;
};

}  // namespace parx::data
