// dropout: in training, sets random elements to 0 and scales the others; in evaluation, the
// identity.
//
// Which elements is a function of (seed, path, replica, number of the call, index of the element):
// see random_layer.hpp.
#pragma once

#include <memory>
#include <string_view>

#include <parx/autograd/ops/dropout.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/cut.hpp>
#include <parx/nn/module.hpp>
#include <parx/nn/random_layer.hpp>

namespace parx::inline PARX_ABI::nn {

class dropout : public module<dropout>, public random_layer, public cuttable_layer {
 public:
  /// Drops each element with this probability. Throws usage_error unless it is in [0, 1).
  explicit dropout(double probability = 0.5) : probability_(probability) {
    require(probability >= 0 && probability < 1, "dropout: a probability of {} is not in [0, 1)",
            probability);
    if (probability == 0) never_draws();
  }

  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) {
    variable<T> y = x;
    if (is_training() && draws()) {
      const shard_spec part = here_.of(x.shape());
      y = parx::dropout(x, probability_, draw(part.global_shape().size()), part);
    }
    return leave_ && leave_->cuts_positions() ? positions_here(*leave_, y) : y;
  }

  template <typename Visit>
  void members(Visit& /*visit*/) {}  // nothing in it is trained

  [[nodiscard]] double probability() const noexcept { return probability_; }

  /// From now on inputs are this chunk of a whole tensor: drops what a whole layer would drop
  /// there. For ranks that split a layer (tensor and sequence parallel) and have the same seed and
  /// replica.
  void take_chunk(const axis_chunk& here) noexcept { here_ = here; }
  /// By columns (units: the whole extent of the last axis), positions or to_positions.
  [[nodiscard]] layer_piece part_on(const cut_place&, const layer_cut& how,
                                   std::string_view path) const override {
    if (how.how == cut::to_positions) {
      const cut_message whole{cut_pass::backward, cut_collective::all_gather,
                              "its result's gradient", how.units};
      return {{}, {how.inputs, whole}};
    }
    if (how.how != cut::columns && how.how != cut::positions)
      refuse_cut(path, "dropout", "columns or positions");
    return {};
  }
  void shard_over(const std::shared_ptr<rank_axis>& axis, const layer_cut& how,
                  std::string_view) override {
    if (how.how == cut::to_positions) {
      leave_ = axis;
    } else {
      take_chunk({how.how == cut::columns ? -1 : 1, axis->rank(), axis->size(), how.units});
    }
  }
  void make_whole() override {
    here_ = {};
    leave_.reset();
  }

 private:
  double probability_;
  axis_chunk here_;
  std::shared_ptr<rank_axis> leave_;
};

}  // namespace parx::nn
