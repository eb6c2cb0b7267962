// encoder_decoder: the original transformer, for summaries and translations: one embedding shared
// by both sides and the output, sinusoidal positions, PyTorch's layers.
//
// With copying, a pointer network (pointer.hpp) beside the output can copy tokens of the source.
//
// Parameters: shared.weight, encoder.layers.0. ..., decoder.layers.0. ..., named within the layers
// as in PyTorch's nn.Transformer. Vaswani et al.: Attention Is All You Need (arXiv 1706.03762); the
// shared matrix: Press, Wolf (arXiv 1608.05859).
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/models/encoder_decoder_config.hpp>
#include <parx/models/pointer.hpp>
#include <parx/models/source_cache.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/nn/dropout.hpp>
#include <parx/nn/embedding.hpp>
#include <parx/nn/position.hpp>
#include <parx/nn/transformer.hpp>

namespace parx::inline PARX_ABI::models {

/// What an encoder_decoder takes of a batch.
struct encoder_decoder_input {
  tensor<std::int32_t> input_ids;          ///< (batch, source positions)
  tensor<std::uint8_t> attention_mask;     ///< 0 at padding of the source
  tensor<std::int32_t> decoder_input_ids;  ///< (batch, target positions)

  template <typename Batch>
  [[nodiscard]] static encoder_decoder_input from(const Batch& batch) {
    return {batch.input_ids, batch.attention_mask, batch.decoder_input_ids};
  }
};

template <typename T = float>
class encoder_decoder : public nn::module<encoder_decoder<T>> {
 public:
  using value_type = T;

  explicit encoder_decoder(encoder_decoder_config config = {})
      : config_(config),
        shared_(config.vocab_size, config.d_model,
                {.start = nn::init::normal(0, 1 / std::sqrt(static_cast<double>(config.d_model))),
                 .use = nn::embedding_use::whole}),
        positions_(config.max_position_embeddings, config.d_model),
        encoder_(config.encoder_layers, config.d_model, config.attention_heads, layer(config)),
        decoder_(config.decoder_layers, config.d_model, config.attention_heads, layer(config)),
        dropout_(config.dropout),
        source_dropout_(config.dropout) {
    if (config.copying == copying::pointer) pointer_.emplace(config.d_model);
  }

  [[nodiscard]] const encoder_decoder_config& config() const noexcept { return config_; }
  [[nodiscard]] std::size_t max_positions() const noexcept {
    return config_.max_position_embeddings;
  }

  /// Layers keep only their inputs and run again in backward: see autograd/checkpoint.hpp.
  void gradient_checkpointing_enable() noexcept {
    encoder_.gradient_checkpointing_enable();
    decoder_.gradient_checkpointing_enable();
  }
  void gradient_checkpointing_disable() noexcept {
    encoder_.gradient_checkpointing_disable();
    decoder_.gradient_checkpointing_disable();
  }

  /// The logits (batch, positions, vocab_size) of the token after each of target (batch,
  /// positions), given source (batch, keys), which is padding where source_mask is 0. With copying
  /// they are log-probabilities; losses and searches take either. In training, target is the labels
  /// shifted right by one, behind a start token.
  template <std::integral Id, std::integral Mask>
  [[nodiscard]] variable<T> forward(const tensor<Id>& source, const tensor<Mask>& source_mask,
                                    const tensor<Id>& target) {
    return decode(target, encode(source, source_mask), source, source_mask);
  }
  [[nodiscard]] variable<T> forward(const encoder_decoder_input& of) {
    return forward(of.input_ids, of.attention_mask, of.decoder_input_ids);
  }

  /// The two halves of forward: memory is (batch, keys, d_model).
  template <std::integral Id, std::integral Mask>
  [[nodiscard]] variable<T> encode(const tensor<Id>& source, const tensor<Mask>& source_mask) {
    this->materialize();
    return encoder_(look_up(source, 0, source_dropout_), masks(source_mask));
  }
  template <std::integral Id, std::integral Mask>
  [[nodiscard]] variable<T> decode(const tensor<Id>& target, const variable<T>& memory,
                                   const tensor<Id>& source, const tensor<Mask>& source_mask) {
    const attention_options<T> causal{.causal = true};
    const auto states = decoder_(embed(target), memory, causal, masks(source_mask));
    return logits(states, memory, source, source_mask);
  }

  /// The forward pass in pieces: both embeddings, each layer, and the logits. All pieces of the
  /// decoder take the encoder's result. Input is a batch with input_ids, attention_mask and
  /// decoder_input_ids (data::sequence_pair_batch).
  template <typename Input = encoder_decoder_input>
  [[nodiscard]] nn::model_blocks<Input, T> blocks() {
    require(encoder_.pieces() > 0 && decoder_.pieces() > 0,
            "encoder_decoder: to be cut into stages, both sides need layers");
    using values = nn::block_input<T>;
    nn::model_blocks<Input, T> all;
    all.push_back({"encoder.embeddings", {"shared"}, [this](const values&, const Input& of) {
                     return look_up(of.input_ids, 0, source_dropout_);
                   }});
    const auto name = [](const char* side, std::size_t i) {
      return side + (".layers." + std::to_string(i));
    };
    const auto parts = [&](const char* side, std::size_t i, std::size_t layers) {
      std::vector<std::string> used{name(side, i)};
      if (i + 1 == layers) used.push_back(side + std::string(".norm"));
      return used;
    };
    for (std::size_t i = 0; i < encoder_.pieces(); ++i) {
      all.push_back({name("encoder", i), parts("encoder", i, encoder_.pieces()),
                     [this, i](const values& x, const Input& of) {
                       return encoder_.piece(i, x, masks(of.attention_mask));
                     }});
    }
    const std::vector<std::string> memory{all.back().name};
    all.push_back({"decoder.embeddings", {"shared"}, [this](const values&, const Input& of) {
                     return look_up(of.decoder_input_ids, 0, dropout_);
                   }});
    for (std::size_t i = 0; i < decoder_.pieces(); ++i) {
      all.push_back({name("decoder", i), parts("decoder", i, decoder_.pieces()),
                     [this, i](const values& x, const Input& of) {
                       return decoder_.piece(i, x, x.taken(0), attention_options<T>{.causal = true},
                                             masks(of.attention_mask));
                     },
                     memory});
    }
    std::vector<std::string> of_logits{"shared"};
    if (pointer_) of_logits.emplace_back("pointer");
    all.push_back({"logits", of_logits, [this](const values& x, const Input& of) {
                     return logits(x, x.taken(0), of.input_ids, of.attention_mask);
                   },
                   memory});
    return all;
  }

  /// For generating texts of up to `capacity` tokens, token by token: computes what depends only on
  /// source (1, keys), whose mask is source_mask. Call this, and decode() with its result, within
  /// no_grad and in evaluation mode.
  template <std::integral Id, std::integral Mask>
  [[nodiscard]] source_cache<T> make_cache(const tensor<Id>& source,
                                           const tensor<Mask>& source_mask, std::size_t capacity) {
    require(source.rank() == 2 && source.extent(0) == 1,
            "encoder_decoder: a cache is for one source, (1, keys), not {}",
            to_string(source.shape()));
    const variable<T> memory = encode(source, source_mask);
    return {decoder_.make_caches(memory, capacity),
            pointer_ ? pointer_->keys(memory) : variable<T>(), source.template cast<std::int64_t>(),
            source_mask.template cast<std::uint8_t>()};
  }
  /// The logits of the token after each of `next` (texts, positions), which follow the tokens in
  /// the cache and are appended to it.
  template <std::integral Id>
  [[nodiscard]] variable<T> decode(const tensor<Id>& next, source_cache<T>* cache) {
    const variable<T> x = embed(next, cache->length());
    const auto states = decoder_(x, &cache->layers(), masks(cache->mask()));
    const auto logits = shared_.multiply(states);
    return pointer_
               ? pointer_->point(logits, states, cache->pointer_keys(), cache->ids(), cache->mask())
               : logits;
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("shared", shared_);
    for (const char* user : {"encoder.embed_tokens", "decoder.embed_tokens", "lm_head"})
      visit.other_name(user, shared_);
    visit("encoder", encoder_);
    visit("decoder", decoder_);
    visit("dropout", dropout_);
    visit("source_dropout", source_dropout_);
    if (pointer_) visit("pointer", *pointer_);
  }

 private:
  [[nodiscard]] static nn::transformer_layer_options layer(const encoder_decoder_config& c) {
    return {.feed_forward = c.ffn_dim,
            .dropout = c.dropout,
            .activation = c.activation,
            .order = c.order};
  }
  template <std::integral Mask>
  [[nodiscard]] static attention_options<T> masks(const tensor<Mask>& mask) {
    return {.key_mask = mask.template cast<std::uint8_t>()};
  }
  template <std::integral Id>
  [[nodiscard]] variable<T> embed(const tensor<Id>& ids, std::size_t first = 0) {
    this->materialize();
    return look_up(ids, first, dropout_);
  }
  template <std::integral Id>
  [[nodiscard]] variable<T> look_up(const tensor<Id>& ids, std::size_t first,
                                    nn::dropout& dropout) {
    const std::size_t most = config_.max_position_embeddings;
    require(ids.rank() == 2 && ids.extent(1) > 0 && first + ids.extent(1) <= most,
            "encoder_decoder: token ids of shape {} are not (batch, positions) with 1 to {} "
            "positions",
            to_string(ids.shape()), first < most ? most - first : 0);
    const T scale = std::sqrt(static_cast<T>(config_.d_model));
    return dropout(positions_(shared_(ids) * scale, first));
  }
  template <std::integral Id, std::integral Mask>
  [[nodiscard]] variable<T> logits(const variable<T>& states, const variable<T>& memory,
                                   const tensor<Id>& source, const tensor<Mask>& source_mask) {
    const auto words = shared_.multiply(states);
    return pointer_ ? (*pointer_)(words, states, memory, source, source_mask) : words;
  }

  encoder_decoder_config config_;
  nn::embedding<T> shared_;
  nn::sinusoidal_position<T> positions_;
  nn::transformer_encoder<T> encoder_;
  nn::transformer_decoder<T> decoder_;
  // One for each side, whose random numbers then do not depend on where the other side runs.
  nn::dropout dropout_, source_dropout_;
  std::optional<pointer<T>> pointer_;
};

}  // namespace parx::models
