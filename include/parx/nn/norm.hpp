// layer_norm and rms_norm: each row normalised, then scaled (and shifted) by learned values.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/layer_norm.hpp>
#include <parx/autograd/ops/rms_norm.hpp>
#include <parx/nn/cut.hpp>
#include <parx/nn/module.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::nn {

/// A norm whose parameters are whole on all ranks. Where its inputs are cut by positions, each rank
/// has partial gradients, which are summed.
class cuttable_norm : public cuttable_layer {
 public:
  void shard_over(const std::shared_ptr<rank_axis>& axis, const layer_cut& how,
                  std::string_view) override {
    axis_ = axis;
    gathers_ = how.how == cut::from_positions;
  }
  void make_whole() override {
    axis_.reset();
    gathers_ = false;
  }

 protected:
  /// For a norm with `parameters` parameters of `width` elements.
  [[nodiscard]] static layer_piece part_of_norm(const layer_cut& how, std::string_view path,
                                               std::size_t parameters, std::size_t width) {
    if (how.how != cut::positions && how.how != cut::from_positions)
      refuse_cut(path, "a norm", "positions");
    const cut_message summed{cut_pass::backward, cut_collective::all_reduce,
                             "a parameter's gradient", 0, width};
    layer_piece part{{}, {parameters, summed}};
    if (how.how == cut::from_positions) {
      part.messages.push_back(
          {cut_pass::forward, cut_collective::all_gather, "its result", width});
    }
    return part;
  }
  /// `parameter`, with its gradient summed over the ranks.
  template <typename A>
  [[nodiscard]] variable<A> replicated(const variable<A>& parameter) const {
    return axis_ ? across::copy(*axis_, parameter) : parameter;
  }
  /// The layer's result, from the normalised x.
  template <typename A>
  [[nodiscard]] variable<A> result(const variable<A>& x) const {
    return gathers_ && axis_->cuts_positions()
               ? across::gather(*axis_, x, 1, across::whole_gradient::same)
               : x;
  }

 private:
  std::shared_ptr<rank_axis> axis_;
  bool gathers_ = false;
};

template <typename T = float>
class layer_norm : public module<layer_norm<T>>, public cuttable_norm {
 public:
  using value_type = T;

  /// Over a last axis of extent `width`. weight (the scale) starts from 1, bias (the shift) from 0.
  explicit layer_norm(std::size_t width, layer_norm_options options = {})
      : options_(options), weight_("weight", {width}), bias_("bias", {width}) {
    weight_.exempt_from_decay();
    bias_.exempt_from_decay();
  }

  [[nodiscard]] variable<arithmetic_type<T>> forward(const variable<arithmetic_type<T>>& x) const {
    using A = arithmetic_type<T>;
    return result(parx::layer_norm<A>(x, replicated(cast<A>(weight_)), replicated(cast<A>(bias_)),
                                      options_));
  }
  [[nodiscard]] layer_piece part_on(const cut_place&, const layer_cut& how,
                                   std::string_view path) const override {
    return part_of_norm(how, path, 2, weight_.size());
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, init::constant(1));
    visit("bias", bias_, init::constant(0));
    visit.other_name("gamma", weight_);  // in files from TensorFlow
    visit.other_name("beta", bias_);
  }

 private:
  layer_norm_options options_;
  parameter<T> weight_;
  parameter<T> bias_;
};

/// x / sqrt(mean(x^2) + epsilon) times a learned weight, over the last axis.
template <typename T = float>
class rms_norm : public module<rms_norm<T>>, public cuttable_norm {
 public:
  using value_type = T;

  /// Over a last axis of extent `width`. weight starts from 1.
  explicit rms_norm(std::size_t width, rms_norm_options options = {})
      : options_(options), weight_("weight", {width}) {
    weight_.exempt_from_decay();
  }

  [[nodiscard]] variable<arithmetic_type<T>> forward(const variable<arithmetic_type<T>>& x) const {
    using A = arithmetic_type<T>;
    return result(parx::rms_norm<A>(x, replicated(cast<A>(weight_)), options_));
  }
  [[nodiscard]] layer_piece part_on(const cut_place&, const layer_cut& how,
                                   std::string_view path) const override {
    return part_of_norm(how, path, 1, weight_.size());
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, init::constant(1));
  }

 private:
  rms_norm_options options_;
  parameter<T> weight_;
};

}  // namespace parx::nn
