// llama: RMS norm, rotary positions, SwiGLU and grouped heads of keys and values.
//
// The parameters' names and shapes are those in the state_dict of Hugging Face's LlamaForCausalLM.
// The weights of llama2.c are the same with the rotary pairs interleaved.
// Touvron et al.: LLaMA (arXiv 2302.13971), Llama 2 (arXiv 2307.09288).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/gated.hpp>
#include <parx/autograd/ops/rotary.hpp>
#include <parx/core/json.hpp>
#include <parx/models/decoding_cache.hpp>
#include <parx/nn/attention.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/nn/checkpointed.hpp>
#include <parx/nn/embedding.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/linear_cross_entropy.hpp>
#include <parx/nn/norm.hpp>

namespace parx::inline PARX_ABI::models {

enum class word_embeddings {
  tied,   ///< the output uses the embedding's matrix
  apart,  ///< lm_head.weight
};

/// The names of Hugging Face's config.json; the sizes are those of a small model.
struct llama_config {
  std::size_t vocab_size = 32000;
  std::size_t hidden_size = 128;
  std::size_t intermediate_size = 352;
  std::size_t num_hidden_layers = 4;
  std::size_t num_attention_heads = 4;
  std::size_t num_key_value_heads = 4;
  std::size_t max_position_embeddings = 256;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000;
  double initializer_range = 0.02;
  word_embeddings embeddings = word_embeddings::apart;
  rotary_layout layout = rotary_layout::halves;
};

/// The config.json of such a model, for save_pretrained(). Hugging Face's rotary layout is halves.
[[nodiscard]] inline json::value to_json(const llama_config& c) {
  return json::object{{"architectures", json::array{"LlamaForCausalLM"}},
                      {"model_type", "llama"},
                      {"vocab_size", c.vocab_size},
                      {"hidden_size", c.hidden_size},
                      {"intermediate_size", c.intermediate_size},
                      {"num_hidden_layers", c.num_hidden_layers},
                      {"num_attention_heads", c.num_attention_heads},
                      {"num_key_value_heads", c.num_key_value_heads},
                      {"max_position_embeddings", c.max_position_embeddings},
                      {"rms_norm_eps", c.rms_norm_eps},
                      {"rope_theta", c.rope_theta},
                      {"initializer_range", c.initializer_range},
                      {"hidden_act", "silu"},
                      {"tie_word_embeddings", c.embeddings == word_embeddings::tied}};
}

/// A layer of Llama: attention with rotary positions and a gated network, each after a norm.
template <typename T = float>
class llama_layer : public nn::module<llama_layer<T>> {
 public:
  using value_type = T;

  llama_layer(const llama_config& c, const rotary_table<T>& table)
      : layout_(c.layout),
        table_(table),
        query_(c.hidden_size, c.hidden_size, starts(c, first)),
        key_(c.hidden_size, table.width() * c.num_key_value_heads, starts(c, others)),
        value_(c.hidden_size, table.width() * c.num_key_value_heads, starts(c, others)),
        out_(c.hidden_size, c.hidden_size, starts(c)),
        gate_(c.hidden_size, c.intermediate_size, starts(c, first)),
        up_(c.hidden_size, c.intermediate_size, starts(c, others)),
        down_(c.intermediate_size, c.hidden_size, starts(c)),
        norm1_(c.hidden_size, {.epsilon = c.rms_norm_eps}),
        norm2_(c.hidden_size, {.epsilon = c.rms_norm_eps}),
        attention_(c.num_attention_heads) {}

  /// x is (batch, positions, hidden_size); the cache, if there is one, has the positions before.
  [[nodiscard]] variable<T> forward(const variable<T>& x, nn::kv_cache<T>* cache) {
    const variable<T> y = query_.enter(norm1_(x));
    const rotary_options turn{.layout = layout_,
                              .first_position = cache == nullptr ? 0 : cache->length()};
    const variable<T> q = rotary(query_(y), table_, turn), k = rotary(key_(y), table_, turn);
    const variable<T> attended =
        cache == nullptr ? attention_(q, k, value_(y), attention_options<T>{.causal = true})
                         : attention_(q, k, value_(y), cache);
    const variable<T> z = x + out_(attended);
    const variable<T> w = gate_.enter(norm2_(z));
    return z + down_(swiglu(gate_(w), up_(w)));
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("self_attn.q_proj", query_);
    visit("self_attn.k_proj", key_);
    visit("self_attn.v_proj", value_);
    visit("self_attn.o_proj", out_);
    visit("self_attn", attention_);
    visit("mlp.gate_proj", gate_);
    visit("mlp.up_proj", up_);
    visit("mlp.down_proj", down_);
    visit("input_layernorm", norm1_);
    visit("post_attention_layernorm", norm2_);
    visit.constant_name("self_attn.rotary_emb.inv_freq");
  }

 private:
  // Several layers read one input.
  static constexpr auto first = nn::matrix_cut::input::entered_for_all;
  static constexpr auto others = nn::matrix_cut::input::entered;

  [[nodiscard]] static nn::linear_options starts(
      const llama_config& c, nn::matrix_cut::input input = nn::matrix_cut::input::of_this_layer) {
    return {.bias = nn::bias::none,
            .start = nn::init::normal(0, c.initializer_range),
            .input = input};
  }

  rotary_layout layout_;
  rotary_table<T> table_;
  nn::linear<T> query_, key_, value_, out_, gate_, up_, down_;
  nn::rms_norm<T> norm1_, norm2_;
  nn::dot_product_attention attention_;
};

template <typename T = float>
class llama : public nn::module<llama<T>> {
 public:
  using value_type = T;

  /// Throws usage_error for numbers that do not fit together.
  explicit llama(llama_config config = {})
      : config_(checked(config)),
        token_embedding_(
            config.vocab_size, config.hidden_size,
            {.start = nn::init::normal(0, config.initializer_range),
             .use = config.embeddings == word_embeddings::tied ? nn::embedding_use::whole
                                                               : nn::embedding_use::lookups}),
        norm_(config.hidden_size, {.epsilon = config.rms_norm_eps}) {
    const rotary_table<T> table(config.max_position_embeddings, head_width(), config.rope_theta);
    layers_.reserve(config.num_hidden_layers);
    for (std::size_t i = 0; i < config.num_hidden_layers; ++i) layers_.emplace_back(config, table);
    if (config.embeddings == word_embeddings::apart) {
      head_.emplace(config.hidden_size, config.vocab_size,
                    nn::linear_options{.bias = nn::bias::none,
                                       .start = nn::init::normal(0, config.initializer_range)});
      head_->weight().mark_table();
    }
  }

  [[nodiscard]] const llama_config& config() const noexcept { return config_; }
  [[nodiscard]] std::size_t max_positions() const noexcept {
    return config_.max_position_embeddings;
  }
  /// Layers keep only their inputs and run again in backward: see autograd/checkpoint.hpp.
  void gradient_checkpointing_enable() noexcept { checkpointing_.enable(); }
  void gradient_checkpointing_disable() noexcept { checkpointing_.disable(); }
  [[nodiscard]] decoding_cache<T> make_cache(std::size_t batch, std::size_t capacity) const {
    return {config_.num_hidden_layers, batch, capacity};
  }

  /// The logits (batch, positions, vocab_size) of the token after each of ids (batch, positions).
  /// With a cache, ids follow the positions in it and are appended to it; call that within no_grad.
  /// Throws usage_error beyond max_position_embeddings.
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
    const variable<T> y = norm_(hidden_states(ids, nullptr));
    return head_ ? nn::linear_cross_entropy(y, *head_, labels, options)
                 : nn::linear_cross_entropy(y, token_embedding_, labels, options);
  }
  /// The forward pass in pieces: the embedding, each layer, and the logits.
  /// `text`, if not null, has the caches of a text that is generated; borrowed.
  template <std::integral Id = std::int32_t>
  [[nodiscard]] nn::model_blocks<tensor<Id>, T> blocks(decoded_text<T>* text = nullptr) {
    using input = const tensor<Id>&;
    nn::model_blocks<tensor<Id>, T> all;
    all.push_back({"embed_tokens", {"model.embed_tokens"},
                   [this](const variable<T>&, input ids) { return embed(ids); }});
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      all.push_back({"layers." + std::to_string(i), {"model.layers." + std::to_string(i)},
                     [this, i, text](const variable<T>& x, input) {
                       return checkpointing_.run(layers_[i], x,
                                                 text == nullptr ? nullptr : text->layer(i));
                     },
                     {}, false});
    }
    all.push_back({"lm_head", {"model.norm", head_ ? "lm_head" : "model.embed_tokens"},
                   [this](const variable<T>& x, input) { return logits(x); }, {}, false});
    return all;
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("model.embed_tokens", token_embedding_);
    visit("model.layers", layers_);
    visit("model.norm", norm_);
    if (head_) visit("lm_head", *head_);
    else visit.other_name("lm_head", token_embedding_);
    visit.optional_prefix("model");  // LlamaModel's names
  }

 private:
  template <std::integral Id>
  [[nodiscard]] variable<T> embed(const tensor<Id>& ids) {
    require(ids.rank() == 2 && ids.extent(1) > 0,
            "llama: token ids of shape {} are not (batch, positions)", to_string(ids.shape()));
    return token_embedding_(ids);
  }
  template <std::integral Id>
  [[nodiscard]] variable<T> hidden_states(const tensor<Id>& ids, decoding_cache<T>* cache) {
    variable<T> x = embed(ids);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      nn::kv_cache<T>* const seen = cache == nullptr ? nullptr : &cache->layer(i);
      x = checkpointing_.run(layers_[i], x, seen);
    }
    return x;
  }
  [[nodiscard]] variable<T> logits(const variable<T>& x) {
    const variable<T> y = norm_(x);
    return head_ ? (*head_)(y) : token_embedding_.multiply(y);
  }
  [[nodiscard]] static const llama_config& checked(const llama_config& c) {
    require(c.num_attention_heads > 0 && c.hidden_size % c.num_attention_heads == 0 &&
                c.num_key_value_heads > 0 && c.num_attention_heads % c.num_key_value_heads == 0,
            "llama: hidden_size {} must be a multiple of num_attention_heads {}, and that of "
            "num_key_value_heads {}",
            c.hidden_size, c.num_attention_heads, c.num_key_value_heads);
    const std::size_t head = c.hidden_size / c.num_attention_heads;
    require(head % 2 == 0,
            "llama: hidden_size {} over num_attention_heads {} makes heads of {} features, and "
            "rotary positions turn pairs of them: it must be an even number",
            c.hidden_size, c.num_attention_heads, head);
    return c;
  }
  [[nodiscard]] std::size_t head_width() const {
    return config_.hidden_size / config_.num_attention_heads;
  }

  llama_config config_;
  nn::embedding<T> token_embedding_;
  std::vector<llama_layer<T>> layers_;
  nn::checkpointing checkpointing_;
  nn::rms_norm<T> norm_;
  std::optional<nn::linear<T>> head_;
};

}  // namespace parx::models
