// gpt: GPT-2: learned positions, pre-norm layers, and an output that shares the embedding's matrix.
//
// The parameters' names and shapes are those in the state_dict of Hugging Face's GPT2LMHeadModel,
// whose Conv1D stores weights as (in, out). lm_head.weight is transformer.wte.weight and is not
// listed twice. Files may have GPT2Model's names, and masks. Radford et al.: Language Models are
// Unsupervised Multitask Learners (2019).
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/core/json.hpp>
#include <parx/models/decoding_cache.hpp>
#include <parx/nn/attention.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/nn/checkpointed.hpp>
#include <parx/nn/dropout.hpp>
#include <parx/nn/embedding.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/linear_cross_entropy.hpp>
#include <parx/nn/norm.hpp>

namespace parx::inline PARX_ABI::models {

/// The names of Hugging Face's config.json; the sizes are those of a small model.
struct gpt_config {
  std::size_t vocab_size = 50257;
  std::size_t n_positions = 128;
  std::size_t n_embd = 128;
  std::size_t n_layer = 4;
  std::size_t n_head = 4;
  std::size_t n_inner = 0;  ///< 0: 4 n_embd
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double resid_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
};

/// The config.json of such a model, for save_pretrained().
[[nodiscard]] inline json::value to_json(const gpt_config& c) {
  return json::object{{"architectures", json::array{"GPT2LMHeadModel"}},
                      {"model_type", "gpt2"},
                      {"vocab_size", c.vocab_size},
                      {"n_positions", c.n_positions},
                      {"n_embd", c.n_embd},
                      {"n_layer", c.n_layer},
                      {"n_head", c.n_head},
                      {"n_inner", c.n_inner > 0 ? c.n_inner : 4 * c.n_embd},
                      {"activation_function", "gelu_new"},
                      {"embd_pdrop", c.embd_pdrop},
                      {"attn_pdrop", c.attn_pdrop},
                      {"resid_pdrop", c.resid_pdrop},
                      {"layer_norm_epsilon", c.layer_norm_epsilon},
                      {"initializer_range", c.initializer_range},
                      {"tie_word_embeddings", true}};
}

/// A layer of GPT-2: attention and a network of two layers, each after a norm.
template <typename T = float>
class gpt_block : public nn::module<gpt_block<T>> {
 public:
  using value_type = T;

  explicit gpt_block(const gpt_config& c)
      : qkv_(c.n_embd, 3 * c.n_embd, conv1d(c.initializer_range)),
        attended_(c.n_embd, c.n_embd, conv1d(residual_range(c))),
        wide_(c.n_embd, inner(c), conv1d(c.initializer_range, activation::gelu_tanh)),
        narrow_(inner(c), c.n_embd, conv1d(residual_range(c))),
        norm1_(c.n_embd, {.epsilon = c.layer_norm_epsilon}),
        norm2_(c.n_embd, {.epsilon = c.layer_norm_epsilon}),
        attention_(c.n_head, {.dropout = c.attn_pdrop}),
        attended_dropout_(c.resid_pdrop),
        dropout_(c.resid_pdrop) {
    require(c.n_head > 0 && c.n_embd % c.n_head == 0,
            "gpt: n_embd {} is not a multiple of n_head {}", c.n_embd, c.n_head);
  }

  /// x is (batch, positions, n_embd); the cache, if there is one, has the positions before.
  [[nodiscard]] variable<T> forward(const variable<T>& x, nn::kv_cache<T>* cache) {
    const variable<T> y = x + attended_dropout_(attended_(attend(qkv_(norm1_(x)), cache)));
    return y + dropout_(narrow_(wide_(norm2_(y))));
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("ln_1", norm1_);
    visit("attn.c_attn", qkv_);
    visit("attn.c_proj", attended_);
    visit("attn", attention_);
    visit("attn.resid_dropout", attended_dropout_);
    visit("ln_2", norm2_);
    visit("mlp.c_fc", wide_);
    visit("mlp.c_proj", narrow_);
    visit("mlp.dropout", dropout_);
    visit.constant_name("attn.bias");  // the causal mask
    visit.constant_name("attn.masked_bias");
  }

 private:
  [[nodiscard]] static std::size_t inner(const gpt_config& c) {
    return c.n_inner > 0 ? c.n_inner : 4 * c.n_embd;
  }
  [[nodiscard]] static nn::linear_options conv1d(double deviation,
                                                 activation f = activation::none) {
    return {.start = nn::init::normal(0, deviation),
            .activation = f,
            .layout = weight_layout::in_out};
  }
  /// GPT-2 scales the weights of layers that add to the residual stream by 1 / sqrt(their number).
  [[nodiscard]] static double residual_range(const gpt_config& c) {
    return c.initializer_range / std::sqrt(2 * static_cast<double>(c.n_layer));
  }
  [[nodiscard]] variable<T> attend(const variable<T>& qkv, nn::kv_cache<T>* cache) {
    if (cache == nullptr) return attention_(qkv, attention_options<T>{.causal = true});
    const std::size_t width = qkv.extent(-1) / 3;
    const auto part = [&](std::size_t i) { return slice(qkv, -1, i * width, (i + 1) * width); };
    return attention_(part(0), part(1), part(2), cache);
  }

  nn::linear<T> qkv_, attended_, wide_, narrow_;
  nn::layer_norm<T> norm1_, norm2_;
  nn::dot_product_attention attention_;
  nn::dropout attended_dropout_, dropout_;
};

template <typename T = float>
class gpt : public nn::module<gpt<T>> {
 public:
  using value_type = T;

  /// Throws usage_error for numbers that do not fit together.
  explicit gpt(gpt_config config = {})
      : config_(config),
        token_embedding_(config.vocab_size, config.n_embd, starts()),
        position_embedding_(config.n_positions, config.n_embd, starts()),
        dropout_(config.embd_pdrop),
        norm_(config.n_embd, {.epsilon = config.layer_norm_epsilon}) {
    layers_.reserve(config.n_layer);
    for (std::size_t i = 0; i < config.n_layer; ++i) layers_.emplace_back(config);
  }

  [[nodiscard]] const gpt_config& config() const noexcept { return config_; }
  [[nodiscard]] std::size_t max_positions() const noexcept { return config_.n_positions; }
  /// Layers keep only their inputs and run again in backward: see autograd/checkpoint.hpp.
  void gradient_checkpointing_enable() noexcept { checkpointing_.enable(); }
  void gradient_checkpointing_disable() noexcept { checkpointing_.disable(); }
  [[nodiscard]] decoding_cache<T> make_cache(std::size_t batch, std::size_t capacity) const {
    return {config_.n_layer, batch, capacity};
  }

  /// The logits (batch, positions, vocab_size) of the token after each of ids (batch, positions).
  /// With a cache, ids follow the positions in it and are appended to it; call that within no_grad.
  /// Throws usage_error when there are more positions than n_positions.
  template <std::integral Id>
  [[nodiscard]] variable<T> forward(const tensor<Id>& ids, decoding_cache<T>* cache = nullptr) {
    return logits(hidden_states(ids, cache));
  }
  /// nn::cross_entropy of these logits, with the same bits; they are never whole in memory, and
  /// backward computes them again: see nn/linear_cross_entropy.hpp. For large vocabularies. Throws
  /// usage_error where the output is cut over ranks.
  template <std::integral Id, std::integral Label>
  [[nodiscard]] weighted_loss<T> forward(const tensor<Id>& ids, const tensor<Label>& labels,
                                         const cross_entropy_options& options = {}) {
    return nn::linear_cross_entropy(norm_(hidden_states(ids, nullptr)), token_embedding_, labels,
                                    options);
  }
  /// The forward pass in pieces: the embeddings, each layer, and the logits.
  /// `text`, if not null, has the caches of a text that is generated; borrowed.
  template <std::integral Id = std::int32_t>
  [[nodiscard]] nn::model_blocks<tensor<Id>, T> blocks(decoded_text<T>* text = nullptr) {
    using input = const tensor<Id>&;
    nn::model_blocks<tensor<Id>, T> all;
    all.push_back({"embeddings", {"transformer.wte", "transformer.wpe"},
                   [this, text](const variable<T>&, input ids) {
                     return embed(ids, text == nullptr ? 0 : text->length);
                   }});
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      all.push_back({"h." + std::to_string(i), {"transformer.h." + std::to_string(i)},
                     [this, i, text](const variable<T>& x, input) {
                       return checkpointing_.run(layers_[i], x,
                                                 text == nullptr ? nullptr : text->layer(i));
                     },
                     {}, false});
    }
    all.push_back({"lm_head", {"transformer.ln_f", "transformer.wte"},
                   [this](const variable<T>& x, input) { return logits(x); }, {}, false});
    return all;
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("transformer.wte", token_embedding_);
    visit("transformer.wpe", position_embedding_);
    visit("transformer.drop", dropout_);
    visit("transformer.h", layers_);
    visit("transformer.ln_f", norm_);
    visit.other_name("lm_head", token_embedding_);
    visit.optional_prefix("transformer");  // GPT2Model's names, in the files of gpt2 itself
  }

 private:
  template <std::integral Id>
  [[nodiscard]] variable<T> embed(const tensor<Id>& ids, std::size_t first) {
    require(ids.rank() == 2 && ids.extent(1) > 0 && first + ids.extent(1) <= config_.n_positions,
            "gpt: token ids of shape {} behind {} others are not (batch, positions) with 1 to {} "
            "positions",
            to_string(ids.shape()), first, config_.n_positions);
    return dropout_(token_embedding_(ids) +
                    slice<T>(position_embedding_.weight(), 0, first, first + ids.extent(1)));
  }
  template <std::integral Id>
  [[nodiscard]] variable<T> hidden_states(const tensor<Id>& ids, decoding_cache<T>* cache) {
    variable<T> x = embed(ids, cache == nullptr ? 0 : cache->length());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      nn::kv_cache<T>* const seen = cache == nullptr ? nullptr : &cache->layer(i);
      x = checkpointing_.run(layers_[i], x, seen);
    }
    return x;
  }
  [[nodiscard]] variable<T> logits(const variable<T>& x) {
    return token_embedding_.multiply(norm_(x));
  }
  /// Both tables are used whole: the output multiplies by one and takes a slice of the other.
  [[nodiscard]] nn::embedding_options starts() const {
    return {.start = nn::init::normal(0, config_.initializer_range),
            .use = nn::embedding_use::whole};
  }

  gpt_config config_;
  nn::embedding<T> token_embedding_, position_embedding_;
  nn::dropout dropout_;
  std::vector<gpt_block<T>> layers_;
  nn::checkpointing checkpointing_;
  nn::layer_norm<T> norm_;
};

}  // namespace parx::models
