// embedding: a learned row for each number.
#pragma once

#include <concepts>
#include <cstddef>

#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/embedding.hpp>
#include <parx/nn/module.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::nn {

/// What a model does with the matrix. Wrappers exchange gradients of what is only looked up in by
/// the rows of a batch.
enum class embedding_use {
  lookups,
  whole  ///< it is also multiplied with (an output that is tied to it) or sliced: weight()
};

struct embedding_options {
  initializer start = init::normal(0, 1);  ///< PyTorch's
  embedding_use use = embedding_use::lookups;
};

template <typename T = float>
class embedding : public module<embedding<T>> {
 public:
  using value_type = T;

  /// `rows` vectors of `width`. weight is (rows, width).
  embedding(std::size_t rows, std::size_t width, embedding_options options = {})
      : start_(options.start), weight_("weight", {rows, width}) {
    if (options.use == embedding_use::lookups) weight_.expect_row_grad();
  }

  /// The result is (indices..., width). Throws usage_error for an index outside the rows.
  template <std::integral Index>
  [[nodiscard]] variable<arithmetic_type<T>> forward(const tensor<Index>& indices) const {
    return cast<arithmetic_type<T>>(parx::embedding<T>(weight_, indices));
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, start_);
  }

  [[nodiscard]] const parameter<T>& weight() const noexcept { return weight_; }

 private:
  initializer start_;
  parameter<T> weight_;
};

}  // namespace parx::nn
