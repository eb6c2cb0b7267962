// cut: layers whose parameters are split over the ranks of an axis (tensor parallelism).
//
// A layer that can be cut derives from cuttable_layer. A wrapper (parx::parallelize, following a
// plan) calls its shard_over(). From then on the layer's calls communicate: ranks with the same
// seed and replica, calling the same layers in the same order, get the results and gradients of the
// whole layer. Layers depend on the abstract rank_axis, not on process groups.
//
// columns followed by rows is the pair of Megatron-LM: the first layer's outputs are cut, functions
// of single outputs keep the cut, and the second layer sums over the ranks. Between such pairs
// activations are whole on all ranks, or cut by positions (sequence parallel). (arXiv 1909.08053,
// 2205.05198)
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <parx/autograd/ops/across.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/layer_cut.hpp>
#include <parx/nn/same_input.hpp>

namespace parx::inline PARX_ABI::nn {

class cuttable_layer {
 public:
  virtual ~cuttable_layer() = default;
  /// The part that shard_over() would leave on the rank `where`, and the messages it would cause.
  /// Pure. Throws usage_error for a cut that this layer does not support.
  [[nodiscard]] virtual layer_piece part_on(const cut_place& where, const layer_cut& how,
                                           std::string_view path) const = 0;
  /// Keeps only this rank's part of the layer, which is called `path`. Throws usage_error for a cut
  /// that this layer does not support, and where it is cut already.
  virtual void shard_over(const std::shared_ptr<rank_axis>& axis, const layer_cut& how,
                          std::string_view path) = 0;
  /// The layer is as before shard_over(); its parameters are the caller's affair.
  virtual void make_whole() = 0;

 protected:
  cuttable_layer() = default;
  cuttable_layer(const cuttable_layer&) = default;
  cuttable_layer& operator=(const cuttable_layer&) = default;
  cuttable_layer(cuttable_layer&&) = default;
  cuttable_layer& operator=(cuttable_layer&&) = default;
};

/// What a layer notes at its results, of which this rank has `here` of the `whole` outputs; null if
/// that are all.
[[nodiscard]] inline std::shared_ptr<const cut_rows> cut_results(
    const std::shared_ptr<rank_axis>& axis, cut_result result, std::size_t here, std::size_t whole,
    std::string_view path) {
  if (here == whole) return nullptr;
  return std::make_shared<const cut_rows>(cut_rows{axis, result, here, whole, std::string(path)});
}

[[nodiscard]] inline cut_place place_on(const rank_axis& axis) noexcept {
  return {axis.rank(), axis.size()};
}

inline void require_even_positions(const rank_axis& axis, const shape& s) {
  require(s.rank() == 3 && s[1] % static_cast<std::size_t>(axis.size()) == 0,
          "activations of shape {} are not (batch, positions, features) with a number of positions "
          "that {} ranks can share evenly: pad the texts",
          to_string(s), axis.size());
}

/// This rank's chunk of the positions of x (batch, positions, features), which is whole on all
/// ranks. Throws usage_error unless all ranks get the same number of positions.
template <typename T>
[[nodiscard]] variable<T> positions_here(rank_axis& axis, const variable<T>& x) {
  require_even_positions(axis, x.shape());
  return across::chunk(axis, x, 1, across::whole_gradient::same);
}

/// The matrix product of a linear layer whose matrix may be cut.
class matrix_cut {
 public:
  [[nodiscard]] explicit operator bool() const noexcept { return axis_ != nullptr; }
  [[nodiscard]] rank_axis& axis() const noexcept { return *axis_; }
  [[nodiscard]] bool by_positions() const noexcept {
    return between_ == between_cuts::positions && axis_->cuts_positions();
  }

  /// `bias` may be undefined.
  template <typename T>
  [[nodiscard]] static matrix_piece part(const cut_place& where, const layer_cut& how,
                                        std::string_view path, const parameter<T>& weight,
                                        const parameter<T>& bias, weight_layout layout) {
    return part_of_matrix(where, how, path, weight.global_shape(),
                          bias.defined() ? &bias.global_shape() : nullptr,
                          layout == weight_layout::out_in ? 0 : 1);
  }
  template <typename T>
  void cut(const std::shared_ptr<rank_axis>& axis, const layer_cut& how, std::string_view path,
           const parameter<T>& weight, const parameter<T>& bias, weight_layout layout) {
    require(!axis_, "\"{}\" is cut already", path);
    const matrix_piece here = part(place_on(*axis), how, path, weight, bias, layout);
    if (here.weight) weight.keep_part(*here.weight);
    if (here.bias) bias.keep_part(*here.bias);
    used_ = here.used;
    axis_ = axis;
    const std::size_t out = layout == weight_layout::out_in ? 0 : 1;
    const std::size_t outputs = used_.size() > 0 ? used_.size() : weight.shape()[out];
    if (how.how == cut::columns)
      results_ = cut_results(axis, how.result, outputs, weight.global_shape()[out], path);
    layer_ = path;
    how_ = how.how;
    between_ = how.between;
  }

  /// Gathers the positions of an input where they are cut, and sums its gradient over the ranks.
  /// Where several layers read an input, one of them does it for all.
  template <typename T>
  [[nodiscard]] variable<T> enter(const variable<T>& x) const {
    if (!axis_) return x;
    if (!by_positions()) require_same_input(*axis_, x.value(), layer_);
    return by_positions() ? across::gather(*axis_, x, 1, across::whole_gradient::partial)
                          : across::copy(*axis_, x);
  }

  enum class input {
    of_this_layer,
    entered_for_all,  ///< by enter() of this layer, for itself and others
    entered,          ///< by enter() of another layer
  };
  /// See parx::linear.
  template <typename T>
  [[nodiscard]] variable<T> apply(const variable<T>& x, const variable<T>& weight,
                                  const variable<T>& bias, activation f, weight_layout layout,
                                  input from = input::of_this_layer) const {
    if (!axis_) return linear<T>(x, weight, bias, f, layout);
    if (how_ == cut::rows) {
      const variable<T> y = leave(linear<T>(x, weight, {}, activation::none, layout));
      return bias.defined() ? y + outside(bias) : y;
    }
    if (from == input::of_this_layer && by_positions())
      return apply(enter(x), weight, bias, f, layout, input::entered);
    if (from == input::of_this_layer) require_same_input(*axis_, x.value(), layer_);
    std::shared_ptr<input_gradient_reduction<T>> reduction;
    if (from == input::of_this_layer)
      reduction = std::make_shared<across::sum_behind_weight<T>>(*axis_);
    if (used_.size() == 0)
      return part_of_rows(linear<T>(x, weight, bias, f, layout, std::move(reduction)));
    const int out = layout == weight_layout::out_in ? 0 : 1;
    const auto used = [&](const variable<T>& all, int dim) {
      return slice(across::copy(*axis_, all), dim, used_.begin, used_.end);
    };
    return part_of_rows(linear<T>(x, used(weight, out), bias.defined() ? used(bias, 0) : bias, f,
                                  layout, std::move(reduction)));
  }

  /// The sum over the ranks of the products with their rows.
  template <typename T>
  [[nodiscard]] variable<T> leave(const variable<T>& x) const {
    if (!by_positions()) return across::sum(*axis_, x, across::whole_gradient::same);
    require_even_positions(*axis_, x.shape());
    return across::sum_chunk(*axis_, x, 1);
  }
  /// A parameter that is applied to uncut features. Where positions are cut, each rank has a
  /// partial gradient of it.
  template <typename T>
  [[nodiscard]] variable<T> outside(const variable<T>& whole) const {
    return by_positions() ? across::copy(*axis_, whole) : whole;
  }

 private:
  template <typename T>
  [[nodiscard]] variable<T> part_of_rows(variable<T> y) const {
    if (results_) y.value().note_cut(results_);
    return y;
  }

  std::shared_ptr<rank_axis> axis_;
  std::string layer_;  ///< its name, where it is cut
  std::shared_ptr<const cut_rows> results_;  // null: whole
  nn::cut how_ = cut::columns;
  between_cuts between_ = between_cuts::whole;
  unit_range used_{};  // the outputs used here of a matrix that is whole on all ranks
};

}  // namespace parx::nn
