// The layers of a transformer and stacks of them, after PyTorch's nn.TransformerEncoderLayer,
// nn.TransformerDecoderLayer (batch_first = True) and their stacks: the same arithmetic, parameters
// and names.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/nn/attention.hpp>
#include <parx/nn/checkpointed.hpp>
#include <parx/nn/dropout.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/norm.hpp>

namespace parx::inline PARX_ABI::nn {

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

/// PyTorch's TransformerEncoderLayer: attention, then a network of two layers.
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

/// The state of a transformer_decoder_layer between the tokens of a text: the keys and values of
/// the positions so far, and those of the memory, which do not change.
template <typename T = float>
struct decoder_layer_cache {
  kv_cache<T> self;
  projected_memory<T> memory;
};

/// PyTorch's TransformerDecoderLayer: also attention over the memory of an encoder.
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
    return around(
        x, [&](const variable<T>& z) { return self_attention_(z, masks); },
        [&](const variable<T>& z) { return memory_attention_(z, memory, memory, memory_masks); });
  }
  /// Causal: x follows the positions in the cache and is appended to it. Call it within no_grad.
  [[nodiscard]] variable<T> forward(const variable<T>& x, decoder_layer_cache<T>* cache,
                                    const attention_options<T>& memory_masks) {
    return around(
        x, [&](const variable<T>& z) { return self_attention_(z, &cache->self); },
        [&](const variable<T>& z) { return memory_attention_(z, cache->memory, memory_masks); });
  }
  /// For up to `capacity` positions in each text of memory (batch, keys, width).
  [[nodiscard]] decoder_layer_cache<T> make_cache(const variable<T>& memory,
                                                  std::size_t capacity) const {
    return {{memory.extent(0), capacity}, memory_attention_.project(memory)};
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
  /// The layer without its two attentions, which are functions.
  template <typename Self, typename Memory>
  [[nodiscard]] variable<T> around(const variable<T>& x, Self to_itself, Memory to_memory) {
    auto y = detail::residual(x, norm1_, options_.order,
                              [&](const variable<T>& z) { return dropout1_(to_itself(z)); });
    y = detail::residual(y, norm2_, options_.order,
                         [&](const variable<T>& z) { return dropout2_(to_memory(z)); });
    return detail::residual(y, norm3_, options_.order, [&](const variable<T>& z) {
      return dropout3_(linear2_(dropout_(linear1_(z))));
    });
  }

  transformer_layer_options options_;
  multi_head_attention<T> self_attention_, memory_attention_;
  linear<T> linear1_, linear2_;
  layer_norm<T> norm1_, norm2_, norm3_;
  nn::dropout dropout_, dropout1_, dropout2_, dropout3_;
};

/// Layers one after another, "layers.0", "layers.1", ..., and a final norm where they are pre-norm.
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

  /// Layers keep only their inputs and run again in backward: see autograd/checkpoint.hpp.
  void gradient_checkpointing_enable() noexcept { checkpointing_.enable(); }
  void gradient_checkpointing_disable() noexcept { checkpointing_.disable(); }

  /// Each layer gets the previous layer's result and the same `others` (memory, masks).
  template <typename... Others>
  [[nodiscard]] variable<value_type> forward(const variable<value_type>& x,
                                             const Others&... others) {
    variable<value_type> y = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) y = run_layer(i, y, others...);
    return norm_ ? (*norm_)(y) : y;
  }
  /// The pieces of forward: layer i, and for the last layer the final norm.
  template <typename... Others>
  [[nodiscard]] variable<value_type> piece(std::size_t i, const variable<value_type>& x,
                                           const Others&... others) {
    const auto y = run_layer(i, x, others...);
    return norm_ && i + 1 == layers_.size() ? (*norm_)(y) : y;
  }
  [[nodiscard]] std::size_t pieces() const noexcept { return layers_.size(); }
  /// A decoder's layers, each with its own of `caches`, for generating.
  [[nodiscard]] variable<value_type> forward(const variable<value_type>& x,
                                             std::vector<decoder_layer_cache<value_type>>* caches,
                                             const attention_options<value_type>& memory_masks) {
    variable<value_type> y = x;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      y = layers_[i](y, &caches->at(i), memory_masks);
    return norm_ ? (*norm_)(y) : y;
  }
  /// See transformer_decoder_layer::make_cache.
  [[nodiscard]] std::vector<decoder_layer_cache<value_type>> make_caches(
      const variable<value_type>& memory, std::size_t capacity) const {
    std::vector<decoder_layer_cache<value_type>> caches;
    for (const Layer& layer : layers_) caches.push_back(layer.make_cache(memory, capacity));
    return caches;
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("layers", layers_);
    if (norm_) visit("norm", *norm_);
  }

 private:
  template <typename... Others>
  [[nodiscard]] variable<value_type> run_layer(std::size_t i, const variable<value_type>& x,
                                               const Others&... others) {
    return checkpointing_.run(layers_[i], x, others...);
  }

  std::vector<Layer> layers_;
  checkpointing checkpointing_;
  std::optional<layer_norm<value_type>> norm_;
};

/// Encoder layers one behind the other.
template <typename T = float>
using transformer_encoder = transformer_stack<transformer_encoder_layer<T>>;
/// Decoder layers one behind the other.
template <typename T = float>
using transformer_decoder = transformer_stack<transformer_decoder_layer<T>>;

}  // namespace parx::nn
