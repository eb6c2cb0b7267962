// conv1d: what Hugging Face's GPT-2 calls Conv1D: a linear layer whose weight is stored (in, out).
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include <parx/autograd/ops/linear.hpp>
#include <parx/nn/cut.hpp>
#include <parx/nn/module.hpp>

namespace parx::inline PARX_ABI::models::detail {

template <typename T>
class conv1d : public nn::module<conv1d<T>>, public nn::cuttable_layer {
 public:
  using value_type = T;

  conv1d(std::size_t in, std::size_t out, nn::initializer start,
         parx::activation activation = parx::activation::none)
      : activation_(activation),
        start_(start),
        weight_("weight", {in, out}),
        bias_("bias", {out}) {}

  /// x is (..., in), the result (..., out).
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return cut_.apply<T>(x, weight_, bias_, activation_, weight_layout::in_out);
  }

  [[nodiscard]] nn::layer_part part_on(const nn::cut_place& where, const nn::layer_cut& how,
                                       std::string_view path) const override {
    require(how.how != nn::cut::rows || activation_ == parx::activation::none,
            "\"{}\" applies an activation, which must follow the sum over the ranks: it cannot be cut "
            "by rows",
            path);
    return cut_.part(where, how, path, weight_, bias_, weight_layout::in_out)
        .named("weight", "bias");
  }
  void lie_on(const std::shared_ptr<rank_axis>& axis, const nn::layer_cut& how,
              std::string_view path) override {
    cut_.cut(axis, how, path, weight_, bias_, weight_layout::in_out);
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, start_);
    visit("bias", bias_, nn::init::constant(0));
  }

 private:
  parx::activation activation_;
  nn::matrix_cut cut_;
  nn::initializer start_;
  parameter<T> weight_, bias_;
};

}  // namespace parx::models::detail
