// The layers of a transformer and stacks of them, after PyTorch's nn.TransformerEncoderLayer,
// nn.TransformerDecoderLayer (batch_first = True) and their stacks: the same arithmetic, parameters
// and names.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/nn/attention.hpp>
#include <parx/nn/dropout.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/norm.hpp>

namespace parx::nn {

enum class norm_order {
  post,  ///< norm(x + f(x)): the paper's
  pre,   ///< x + f(norm(x)): trains without warm-up
};

struct transformer_layer_options {
  std::size_t feed_forward = 2048;
  double dropout = 0.1;
  parx::activation activation = parx::activation::relu;
  norm_order order = norm_order::post;
  double epsilon = 1e-5;
};

namespace detail {

/// x + f(norm(x)), or norm(x + f(x)).
template <typename T, typename Function>
[[nodiscard]] variable<T> residual(const variable<T>& x, layer_norm<T>& norm, norm_order order,
                                   Function f) {
  return order == norm_order::pre ? x + f(norm(x)) : norm(x + f(x));
}

}  // namespace detail

template <typename T = float>
class transformer_encoder_layer : public module<transformer_encoder_layer<T>> {
 public:
  using value_type = T;

  transformer_encoder_layer(std::size_t width, std::size_t heads,
                            transformer_layer_options options = {})
      : options_(options),
        self_attention_(width, heads, {.dropout = options.dropout}),
        linear1_(width, options.feed_forward, {.activation = options.activation}),
        linear2_(options.feed_forward, width),
        norm1_(width, {.epsilon = options.epsilon}),
        norm2_(width, {.epsilon = options.epsilon}),
        dropout_(options.dropout),
        dropout1_(options.dropout),
        dropout2_(options.dropout) {}

  /// x is (batch, positions, width), like the result.
  [[nodiscard]] variable<T> forward(const variable<T>& x, const attention_options<T>& masks = {}) {
    const auto attended = detail::residual(x, norm1_, options_.order, [&](const variable<T>& y) {
      return dropout1_(self_attention_(y, masks));
    });
    return detail::residual(attended, norm2_, options_.order, [&](const variable<T>& y) {
      return dropout2_(linear2_(dropout_(linear1_(y))));
    });
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("self_attn", self_attention_);
    visit("linear1", linear1_);
    visit("dropout", dropout_);
    visit("linear2", linear2_);
    visit("norm1", norm1_);
    visit("norm2", norm2_);
    visit("dropout1", dropout1_);
    visit("dropout2", dropout2_);
  }

 private:
  transformer_layer_options options_;
  multi_head_attention<T> self_attention_;
  linear<T> linear1_, linear2_;
  layer_norm<T> norm1_, norm2_;
  nn::dropout dropout_, dropout1_, dropout2_;
};

template <typename T = float>
class transformer_decoder_layer : public module<transformer_decoder_layer<T>> {
 public:
  using value_type = T;

  transformer_decoder_layer(std::size_t width, std::size_t heads,
                            transformer_layer_options options = {})
      : options_(options),
        self_attention_(width, heads, {.dropout = options.dropout}),
        memory_attention_(width, heads, {.dropout = options.dropout}),
        linear1_(width, options.feed_forward, {.activation = options.activation}),
        linear2_(options.feed_forward, width),
        norm1_(width, {.epsilon = options.epsilon}),
        norm2_(width, {.epsilon = options.epsilon}),
        norm3_(width, {.epsilon = options.epsilon}),
        dropout_(options.dropout),
        dropout1_(options.dropout),
        dropout2_(options.dropout),
        dropout3_(options.dropout) {}

  /// x is (batch, positions, width) and attends to itself by `masks` (usually causal), then to
  /// memory (batch, keys, width), the encoder's result, by `memory_masks`.
  [[nodiscard]] variable<T> forward(const variable<T>& x, const variable<T>& memory,
                                    const attention_options<T>& masks = {.causal = true},
                                    const attention_options<T>& memory_masks = {}) {
    auto y = detail::residual(x, norm1_, options_.order, [&](const variable<T>& z) {
      return dropout1_(self_attention_(z, masks));
    });
    y = detail::residual(y, norm2_, options_.order, [&](const variable<T>& z) {
      return dropout2_(memory_attention_(z, memory, memory, memory_masks));
    });
    return detail::residual(y, norm3_, options_.order, [&](const variable<T>& z) {
      return dropout3_(linear2_(dropout_(linear1_(z))));
    });
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("self_attn", self_attention_);
    visit("multihead_attn", memory_attention_);
    visit("linear1", linear1_);
    visit("dropout", dropout_);
    visit("linear2", linear2_);
    visit("norm1", norm1_);
    visit("norm2", norm2_);
    visit("norm3", norm3_);
    visit("dropout1", dropout1_);
    visit("dropout2", dropout2_);
    visit("dropout3", dropout3_);
  }

 private:
  transformer_layer_options options_;
  multi_head_attention<T> self_attention_, memory_attention_;
  linear<T> linear1_, linear2_;
  layer_norm<T> norm1_, norm2_, norm3_;
  nn::dropout dropout_, dropout1_, dropout2_, dropout3_;
};

/// Layers one after another, "layers.0", "layers.1", ..., and a last norm where they are pre-norm:
/// Layer is transformer_encoder_layer or transformer_decoder_layer.
template <typename Layer>
class transformer_stack : public module<transformer_stack<Layer>> {
 public:
  using value_type = typename Layer::value_type;

  transformer_stack(std::size_t layers, std::size_t width, std::size_t heads,
                    transformer_layer_options options = {}) {
    layers_.reserve(layers);
    for (std::size_t i = 0; i < layers; ++i) layers_.emplace_back(width, heads, options);
    if (options.order == norm_order::pre) norm_.emplace(width, layer_norm_options{options.epsilon});
  }

  /// Each layer gets the result of the one before and the same `others` (memory, masks).
  template <typename... Others>
  [[nodiscard]] variable<value_type> forward(const variable<value_type>& x,
                                             const Others&... others) {
    variable<value_type> y = x;
    for (Layer& layer : layers_) y = layer(y, others...);
    return norm_ ? (*norm_)(y) : y;
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("layers", layers_);
    if (norm_) visit("norm", *norm_);
  }

 private:
  std::vector<Layer> layers_;
  std::optional<layer_norm<value_type>> norm_;
};

template <typename T = float>
using transformer_encoder = transformer_stack<transformer_encoder_layer<T>>;
template <typename T = float>
using transformer_decoder = transformer_stack<transformer_decoder_layer<T>>;

}  // namespace parx::nn
