// max_pool2d, avg_pool2d and adaptive_avg_pool2d as modules, over images (n, channels, rows,
// columns).
#pragma once

#include <cstddef>

#include <parx/autograd/ops/average_pool.hpp>
#include <parx/autograd/ops/pool.hpp>
#include <parx/nn/module.hpp>

namespace parx::inline PARX_ABI::nn {

/// The largest pixel of each window of size x size; see parx::max_pool2d.
class max_pool2d : public module<max_pool2d> {
 public:
  explicit max_pool2d(std::size_t size = 2, max_pool2d_options options = {}) : options_(options) {
    options_.size = size;
  }
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return parx::max_pool2d(x, options_);
  }
  template <typename Visit>
  void members(Visit& /*visit*/) {}  // nothing in it is trained

 private:
  max_pool2d_options options_;
};

/// The mean of each window of size x size; see parx::avg_pool2d.
class avg_pool2d : public module<avg_pool2d> {
 public:
  explicit avg_pool2d(std::size_t size = 2, avg_pool2d_options options = {}) : options_(options) {
    options_.size = size;
  }
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return parx::avg_pool2d(x, options_);
  }
  template <typename Visit>
  void members(Visit& /*visit*/) {}  // nothing in it is trained

 private:
  avg_pool2d_options options_;
};

/// The means of rows x columns windows, whatever the image's size; see parx::adaptive_avg_pool2d.
class adaptive_avg_pool2d : public module<adaptive_avg_pool2d> {
 public:
  explicit adaptive_avg_pool2d(std::size_t rows = 1, std::size_t columns = 1)
      : rows_(rows), columns_(columns) {}
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return parx::adaptive_avg_pool2d(x, rows_, columns_);
  }
  template <typename Visit>
  void members(Visit& /*visit*/) {}  // nothing in it is trained

 private:
  std::size_t rows_, columns_;
};

}  // namespace parx::nn
