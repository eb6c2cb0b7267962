// embedding: a learned row for each number.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/embedding.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/autograd/ops/vocabulary.hpp>
#include <parx/nn/cut.hpp>
#include <parx/nn/module.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::nn {

/// How a model uses the matrix. With `lookups` wrappers exchange only the gradients of a batch's
/// rows.
enum class embedding_use {
  lookups,
  whole  ///< also multiplied (a tied output) or sliced through weight()
};

struct embedding_options {
  initializer start = init::normal(0, 1);  ///< PyTorch's
  embedding_use use = embedding_use::lookups;
};

template <typename T = float>
class embedding : public module<embedding<T>>, public cuttable_layer {
 public:
  using value_type = T;
  using input_type = tensor<int>;  ///< behind parx::parallel, where it is the first of a sequential

  /// `rows` vectors of `width`. weight is (rows, width).
  embedding(std::size_t rows, std::size_t width, embedding_options options = {})
      : start_(options.start), weight_("weight", {rows, width}) {
    weight_.mark_table();
    if (options.use == embedding_use::lookups) weight_.expect_row_grad();
  }

  /// The result is (indices..., width). Throws usage_error for an index outside the rows.
  template <std::integral Index>
  [[nodiscard]] variable<arithmetic_type<T>> forward(const tensor<Index>& indices) const {
    using A = arithmetic_type<T>;
    if (!axis_) return cast<A>(parx::embedding<T>(weight_, indices));
    require_same_input(*axis_, indices, layer_);
    const variable<A> here = cast<A>(embedding_of_chunk<T>(
        *axis_, weight_, weight_.global_shape()[0], indices));
    if (between_ == between_cuts::whole || !axis_->cuts_positions())
      return across::sum(*axis_, here, across::whole_gradient::same);
    require_even_positions(*axis_, here.shape());
    return across::sum_chunk(*axis_, here, 1);
  }
  /// x (..., width) times the transposed matrix: the logits (..., rows) of a tied output. Where the
  /// matrix is cut, only the logits of this rank's rows.
  [[nodiscard]] variable<arithmetic_type<T>> multiply(
      const variable<arithmetic_type<T>>& x) const {
    using A = arithmetic_type<T>;
    if (!axis_) return parx::linear<A>(x, cast<A>(weight_));
    const variable<A> logits =
        output_ == between_cuts::positions && axis_->cuts_positions()
            ? parx::linear<A>(across::gather(*axis_, x, 1, across::whole_gradient::partial),
                              cast<A>(weight_))
            : parx::linear<A>(x, cast<A>(weight_), {}, activation::none, weight_layout::out_in,
                              std::make_shared<across::sum_behind_weight<A>>(*axis_));
    if (logits_) logits.value().note_cut(logits_);
    return logits;
  }

  [[nodiscard]] layer_piece part_on(const cut_place& where, const layer_cut& how,
                                   std::string_view path) const override {
    if (how.how != cut::vocabulary) refuse_cut(path, "an embedding", "its vocabulary");
    const shard_spec whole = shard_spec::whole(weight_.global_shape());
    const unit_range here = units_here(where, whole.shape()[0], path);
    layer_piece part{{{"weight", whole.slice(0, here.begin, here.end)}},
                    messages_of_result(how, whole.shape()[1])};
    if (how.result == cut_result::logits) {
      layer_cut once = how;
      once.inputs = 1;
      const auto of_output = messages_of_input(once, how.output, whole.shape()[1]);
      part.messages.insert(part.messages.end(), of_output.begin(), of_output.end());
    }
    return part;
  }
  void shard_over(const std::shared_ptr<rank_axis>& axis, const layer_cut& how,
                  std::string_view path) override {
    require(!axis_, "\"{}\" is cut already", path);
    weight_.keep_part(part_on(place_on(*axis), how, path).cut[0].part);
    axis_ = axis;
    layer_ = path;
    between_ = how.between;
    output_ = how.output;
    logits_ = cut_results(axis, cut_result::logits, weight_.shape()[0], weight_.global_shape()[0],
                          path);
  }
  void make_whole() override {
    axis_.reset();
    logits_.reset();
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, start_);
  }

  [[nodiscard]] const parameter<T>& weight() const noexcept { return weight_; }

 private:
  initializer start_;
  std::shared_ptr<rank_axis> axis_;
  std::string layer_;  ///< its name, where it is cut
  std::shared_ptr<const cut_rows> logits_;  // of a tied output; null: whole
  between_cuts between_ = between_cuts::whole, output_ = between_cuts::whole;
  parameter<T> weight_;
};

}  // namespace parx::nn
