// A layer whose sums can be worked out by hand, and samples for it.
#pragma once

#include <cstddef>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>
#include <parx/tensor.hpp>

struct samples {
  parx::tensor<float> x, y;
};

/// Rows of whole numbers, so that sums are exact in whatever order.
inline samples numbers(std::size_t rows, std::size_t width = 2) {
  using parx::tensor;
  samples made{tensor<float>::empty({rows, width}), tensor<float>::empty({rows, width})};
  for (std::size_t i = 0; i < rows * width; ++i) {
    made.x.data()[i] = static_cast<float>(static_cast<int>(i % 5) - 2);
    made.y.data()[i] = static_cast<float>(static_cast<int>(i % 3) - 1);
  }
  return made;
}

inline constexpr auto squares = [](const parx::variable<float>& found, const samples& b) {
  return parx::nn::mse_loss(found, b.y);
};

/// y = x * w, w all 2 at first.
class scale : public parx::nn::module<scale> {
 public:
  using value_type = float;
  explicit scale(std::size_t width = 2) : weight_("weight", parx::shape{width}) {}
  [[nodiscard]] parx::variable<float> forward(const parx::variable<float>& x) {
    return x * weight_;
  }
  [[nodiscard]] const parx::parameter<float>& weight() const { return weight_; }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, parx::nn::init::constant(2));
  }

 private:
  parx::parameter<float> weight_;
};
