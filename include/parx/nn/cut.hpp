// cut: layers whose parameters lie on the ranks of an axis in parts.
//
// A layer that can be cut derives from cuttable_layer, whose lie_on() a wrapper calls before there
// are values (parx::parallelize, by the lines of a plan). From then on the layer communicates in
// its calls; the ranks have the same seed and replica, call the same layers in the same order, and
// find the results and gradients of the whole layer. Layers know the pure interface rank_axis, no
// process groups.
//
// columns ... rows is the pair of Megatron-LM: the first layer's outputs are cut, whatever is
// computed of each is too, and the second layer sums over the ranks. Between such pairs activations
// are whole on all ranks, or cut by positions (sequence parallel). (arXiv 1909.08053, 2205.05198)
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include <parx/autograd/ops/across.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/layer_cut.hpp>

namespace parx::inline PARX_ABI::nn {

class cuttable_layer {
 public:
  virtual ~cuttable_layer() = default;
  /// What lie_on() would leave on the rank `where`, and what it would send. Pure. Throws
  /// usage_error for a cut that this layer has not.
  [[nodiscard]] virtual layer_part part_on(const cut_place& where, const layer_cut& how,
                                           std::string_view path) const = 0;
  /// Of the layer called `path` the part that lies on this rank is cut off, from now on. Throws
  /// usage_error for a cut that this layer has not, and where it has values or is cut already.
  virtual void lie_on(const std::shared_ptr<rank_axis>& axis, const layer_cut& how,
                      std::string_view path) = 0;

 protected:
  cuttable_layer() = default;
  cuttable_layer(const cuttable_layer&) = default;
  cuttable_layer& operator=(const cuttable_layer&) = default;
  cuttable_layer(cuttable_layer&&) = default;
  cuttable_layer& operator=(cuttable_layer&&) = default;
};

[[nodiscard]] inline cut_place place_on(const rank_axis& axis) noexcept {
  return {axis.rank(), axis.size()};
}

inline void require_even_positions(const rank_axis& axis, const shape& s) {
  require(s.rank() == 3 && s[1] % static_cast<std::size_t>(axis.size()) == 0,
          "activations of shape {} are not (batch, positions, features) with a number of positions "
          "that {} ranks can share evenly: pad the texts",
          to_string(s), axis.size());
}

/// The positions of x (batch, positions, features), whole on all ranks, that go on here. Throws
/// usage_error where the ranks would have different numbers of them.
template <typename T>
[[nodiscard]] variable<T> positions_here(rank_axis& axis, const variable<T>& x) {
  require_even_positions(axis, x.shape());
  return across::chunk(axis, x, 1, across::whole_gradient::same);
}

/// What a linear layer does where its matrix is cut.
class matrix_cut {
 public:
  [[nodiscard]] explicit operator bool() const noexcept { return axis_ != nullptr; }
  [[nodiscard]] rank_axis& axis() const noexcept { return *axis_; }
  [[nodiscard]] bool by_positions() const noexcept {
    return between_ == between_cuts::positions && axis_->cuts_positions();
  }

  /// `bias` may be undefined.
  template <typename T>
  [[nodiscard]] static matrix_part part(const cut_place& where, const layer_cut& how,
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
    const matrix_part here = part(place_on(*axis), how, path, weight, bias, layout);
    if (here.weight) weight.keep_part(*here.weight);
    if (here.bias) bias.keep_part(*here.bias);
    used_ = here.used;
    axis_ = axis;
    how_ = how.how;
    between_ = how.between;
  }

  /// For an input that several layers read: one of them enters it for all.
  template <typename T>
  [[nodiscard]] variable<T> enter(const variable<T>& x) const {
    if (!axis_) return x;
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
    std::shared_ptr<input_gradient_reduction<T>> reduction;
    if (from == input::of_this_layer)
      reduction = std::make_shared<across::sum_behind_weight<T>>(*axis_);
    if (used_.size() == 0) return linear<T>(x, weight, bias, f, layout, std::move(reduction));
    const int out = layout == weight_layout::out_in ? 0 : 1;
    const auto used = [&](const variable<T>& all, int dim) {
      return slice(across::copy(*axis_, all), dim, used_.begin, used_.end);
    };
    return linear<T>(x, used(weight, out), bias.defined() ? used(bias, 0) : bias, f, layout,
                     std::move(reduction));
  }

  /// The sum of what the ranks made of their rows.
  template <typename T>
  [[nodiscard]] variable<T> leave(const variable<T>& x) const {
    if (!by_positions()) return across::sum(*axis_, x, across::whole_gradient::same);
    require_even_positions(*axis_, x.shape());
    return across::sum_chunk(*axis_, x, 1);
  }
  /// A parameter that is used between the cuts: by positions, each rank has a part of its gradient.
  template <typename T>
  [[nodiscard]] variable<T> outside(const variable<T>& whole) const {
    return by_positions() ? across::copy(*axis_, whole) : whole;
  }

 private:
  std::shared_ptr<rank_axis> axis_;
  nn::cut how_ = cut::columns;
  between_cuts between_ = between_cuts::whole;
  unit_range used_{};  // outputs, of a whole matrix
};

}  // namespace parx::nn
