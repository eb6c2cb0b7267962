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

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/autograd/ops/across.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI::nn {

enum class cut {
  columns,       ///< by outputs; of dropout: its inputs are, by their last axis
  rows,          ///< by inputs, which are cut by their last axis; the result is whole
  vocabulary,    ///< an embedding by its rows
  heads,         ///< attention: some heads are here
  positions,     ///< a norm or dropout: whole, of inputs that are cut by positions (axis 1)
  to_positions,  ///< dropout: of whole inputs, and its result goes on cut by positions
};

/// What activations are between a pair of columns and rows, and outside of all.
enum class between_cuts {
  whole,      ///< the same on all ranks
  positions,  ///< cut by axis 1 of (batch, positions, features)
};

/// What a layer's result is for.
enum class cut_result {
  features,  ///< the next layer
  logits,    ///< the loss: outputs are classes
};

struct layer_cut {
  nn::cut how = cut::columns;
  /// What is not cut apart, such as heads: the number of them. 0: single features.
  std::size_t units = 0;
  /// Equal blocks of outputs, each of which is cut: 3 for queries, keys and values of one matrix.
  std::size_t blocks = 1;
  /// Heads of queries, where `units` are heads of keys or values that may serve several of them.
  std::size_t served = 0;
  /// What the layer gets or gives outside of its cut.
  between_cuts between = between_cuts::whole;
  /// Of an embedding: what it gets where an output is tied to it.
  between_cuts output = between_cuts::whole;
  cut_result result = cut_result::features;
};

/// Units [begin, end).
struct unit_range {
  std::size_t begin = 0, end = 0;
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
};

class cuttable_layer {
 public:
  virtual ~cuttable_layer() = default;
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

[[noreturn]] inline void refuse_cut(std::string_view path, const char* layer, const char* cuts) {
  throw_usage("\"{}\" is {}: it can be cut by {}", path, layer, cuts);
}

inline void require_even_positions(const rank_axis& axis, const shape& s) {
  require(s.rank() == 3 && s[1] % static_cast<std::size_t>(axis.size()) == 0,
          "activations of shape {} are not (batch, positions, features) with a number of positions "
          "that {} ranks can share evenly: pad the texts",
          to_string(s), axis.size());
}

/// This rank's of `units`. Throws usage_error where there are fewer than ranks.
[[nodiscard]] inline unit_range units_here(const rank_axis& axis, std::size_t units,
                                           std::string_view path) {
  require(units >= static_cast<std::size_t>(axis.size()),
          "\"{}\" cannot be cut over {} ranks: it has {} to deal out, so {} ranks at most", path,
          axis.size(), units, units);
  return {chunk_begin(units, axis.size(), axis.rank()),
          chunk_begin(units, axis.size(), axis.rank() + 1)};
}

/// Of `served` heads of queries this rank's need these of `heads` of keys and values. Throws
/// usage_error where they need parts of several.
[[nodiscard]] inline unit_range heads_serving(const rank_axis& axis, std::size_t heads,
                                              std::size_t served, std::string_view path) {
  const std::size_t each = served / heads;
  const auto serving = [&](const unit_range& queries) {
    return unit_range{queries.begin / each, (queries.end + each - 1) / each};
  };
  for (int rank = 0; rank < axis.size(); ++rank) {  // what one refuses all do
    const unit_range queries{chunk_begin(served, axis.size(), rank),
                             chunk_begin(served, axis.size(), rank + 1)};
    require(serving(queries).size() == 1 || (queries.begin % each == 0 && queries.end % each == 0),
            "\"{}\": {} heads of queries, {} for each head of keys and values, cannot be cut over "
            "{} ranks: rank {} would need a part of a group. Take a number of ranks that divides "
            "{} or is a multiple of it",
            path, served, each, axis.size(), rank, heads);
  }
  return serving(units_here(axis, served, path));
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
  [[nodiscard]] bool by_positions() const noexcept { return between_ == between_cuts::positions; }

  /// `bias` may be undefined.
  template <typename T>
  void cut(const std::shared_ptr<rank_axis>& axis, const layer_cut& how, std::string_view path,
           const parameter<T>& weight, const parameter<T>& bias, weight_layout layout) {
    require(!axis_, "\"{}\" is cut already", path);
    require(how.how == cut::columns || how.how == cut::rows,
            "\"{}\" is a linear layer: it can be cut by columns or by rows", path);
    const bool columns = how.how == cut::columns;
    const std::size_t along = columns == (layout == weight_layout::out_in) ? 0 : 1;
    const std::size_t extent = weight.shape()[along] / how.blocks;
    const std::size_t units = how.units > 0 ? how.units : extent;
    require(extent % units == 0, "\"{}\": {} {} are not {} units of one size", path, extent,
            columns ? "outputs" : "inputs", units);
    const std::size_t width = extent / units;
    if (columns && how.served > 0 && units % static_cast<std::size_t>(axis->size()) != 0) {
      // Heads that several ranks use: all have them, and the gradient is the sum of theirs.
      const unit_range here = heads_serving(*axis, units, how.served, path);
      used_ = {here.begin * width, here.end * width};
    } else {
      const unit_range here = units_here(*axis, units, path);
      std::vector<axis_interval> taken, of_bias;
      for (std::size_t block = 0; block < how.blocks; ++block) {
        const std::size_t first = block * extent;
        taken.push_back({along, first + here.begin * width, first + here.end * width});
        of_bias.push_back({0, taken.back().begin, taken.back().end});
      }
      weight.keep_part(shard_spec::of_cuts(weight.global_shape(), taken));
      if (columns && bias.defined())
        bias.keep_part(shard_spec::of_cuts(bias.global_shape(), of_bias));
    }
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
    entered,  ///< enter() has been called
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
