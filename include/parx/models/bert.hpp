// bert_classifier: BERT with a pooler and a classifier on the first token.
//
// Parameter names and arithmetic are those of Hugging Face's BertForSequenceClassification. Only
// the first position of the last layer is read, so only that one is computed (its keys and values
// come from all positions); in a model with two layers that saves nearly half the work. Devlin,
// Chang, Lee, Toutanova: BERT (arXiv 1810.04805).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/autograd/ops/activation.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/concat.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/core/json.hpp>
#include <parx/nn/attention.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/nn/checkpointed.hpp>
#include <parx/nn/dropout.hpp>
#include <parx/nn/embedding.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/norm.hpp>

namespace parx::inline PARX_ABI::models {

/// The names of Hugging Face's config.json; the numbers are TinyBERT's for AG News.
struct bert_config {
  std::size_t vocab_size = 30522;
  std::size_t hidden_size = 64;
  std::size_t num_hidden_layers = 2;
  std::size_t num_attention_heads = 2;
  std::size_t intermediate_size = 256;
  std::size_t max_position_embeddings = 256;
  std::size_t type_vocab_size = 2;
  std::size_t num_labels = 4;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
};

/// What a bert_classifier takes of a batch: texts of the first token type.
struct bert_input {
  tensor<std::int32_t> input_ids;       ///< (batch, positions)
  tensor<std::uint8_t> attention_mask;  ///< 0 at padding

  template <typename Batch>
  [[nodiscard]] static bert_input from(const Batch& batch) {
    return {batch.input_ids, batch.attention_mask};
  }
};

/// The config.json of such a model, for save_pretrained().
[[nodiscard]] inline json::value to_json(const bert_config& c) {
  return json::object{{"architectures", json::array{"BertForSequenceClassification"}},
                      {"model_type", "bert"},
                      {"problem_type", "single_label_classification"},
                      {"vocab_size", c.vocab_size},
                      {"hidden_size", c.hidden_size},
                      {"num_hidden_layers", c.num_hidden_layers},
                      {"num_attention_heads", c.num_attention_heads},
                      {"intermediate_size", c.intermediate_size},
                      {"hidden_act", "gelu"},
                      {"max_position_embeddings", c.max_position_embeddings},
                      {"type_vocab_size", c.type_vocab_size},
                      {"num_labels", c.num_labels},
                      {"hidden_dropout_prob", c.hidden_dropout_prob},
                      {"attention_probs_dropout_prob", c.attention_probs_dropout_prob},
                      {"layer_norm_eps", c.layer_norm_eps},
                      {"initializer_range", c.initializer_range},
                      {"pad_token_id", 0}};
}

/// Which positions the last layer computes.
enum class bert_positions {
  all,
  first,  ///< the result has one position
};

/// A layer of BERT: attention and a network of two layers, each followed by a norm.
template <typename T = float>
class bert_layer : public nn::module<bert_layer<T>> {
 public:
  using value_type = T;

  explicit bert_layer(const bert_config& c)
      : query_(c.hidden_size, c.hidden_size, reads(c, first)),
        key_(c.hidden_size, c.hidden_size, reads(c, others)),
        value_(c.hidden_size, c.hidden_size, reads(c, others)),
        attended_(c.hidden_size, c.hidden_size, starts(c)),
        wide_(c.hidden_size, c.intermediate_size, starts(c, activation::gelu)),
        narrow_(c.intermediate_size, c.hidden_size, starts(c)),
        attended_norm_(c.hidden_size, {.epsilon = c.layer_norm_eps}),
        norm_(c.hidden_size, {.epsilon = c.layer_norm_eps}),
        attention_(c.num_attention_heads, {.dropout = c.attention_probs_dropout_prob}),
        attended_dropout_(c.hidden_dropout_prob),
        dropout_(c.hidden_dropout_prob) {
    require(c.num_attention_heads > 0 && c.hidden_size % c.num_attention_heads == 0,
            "bert: hidden_size {} is not a multiple of num_attention_heads {}", c.hidden_size,
            c.num_attention_heads);
  }

  /// x is (batch, positions, hidden_size).
  [[nodiscard]] variable<T> forward(const variable<T>& x, const attention_options<T>& masks,
                                    bert_positions which = bert_positions::all) {
    const bool all = which == bert_positions::all;
    const variable<T> read = all ? x : slice(x, 1, 0, 1), entered = query_.enter(x);
    const variable<T> context =
        all ? attention_(linear<T>(entered, side_by_side(&nn::linear<T>::weight),
                                   side_by_side(&nn::linear<T>::bias_values)),
                         masks)
            : attention_(query_(slice(entered, 1, 0, 1)), key_(entered), value_(entered), masks);
    const variable<T> y = attended_norm_(attended_dropout_(attended_(context)) + read);
    return norm_(dropout_(narrow_(wide_(y))) + y);
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("attention.self.query", query_);
    visit("attention.self.key", key_);
    visit("attention.self.value", value_);
    visit("attention.self", attention_);
    visit("attention.output.dense", attended_);
    visit("attention.output.LayerNorm", attended_norm_);
    visit("attention.output.dropout", attended_dropout_);
    visit("intermediate.dense", wide_);
    visit("output.dense", narrow_);
    visit("output.LayerNorm", norm_);
    visit("output.dropout", dropout_);
  }

 private:
  static constexpr auto first = nn::matrix_cut::input::entered_for_all;
  static constexpr auto others = nn::matrix_cut::input::entered;

  [[nodiscard]] static nn::linear_options starts(const bert_config& c,
                                                 activation f = activation::none) {
    return {.start = nn::init::normal(0, c.initializer_range), .activation = f};
  }
  /// Three layers read one input.
  [[nodiscard]] static nn::linear_options reads(const bert_config& c, nn::matrix_cut::input input) {
    return {.start = nn::init::normal(0, c.initializer_range), .input = input};
  }
  /// One product with all three matrices is faster than three.
  template <typename Part>
  [[nodiscard]] variable<T> side_by_side(Part part) const {
    return concat<T>({(query_.*part)(), (key_.*part)(), (value_.*part)()});
  }

  nn::linear<T> query_, key_, value_, attended_, wide_, narrow_;
  nn::layer_norm<T> attended_norm_, norm_;
  nn::dot_product_attention attention_;
  nn::dropout attended_dropout_, dropout_;
};

template <typename T = float>
class bert_classifier : public nn::module<bert_classifier<T>> {
 public:
  using value_type = T;

  /// Throws usage_error for numbers that do not fit together.
  explicit bert_classifier(bert_config config = {})
      : config_(config),
        token_embedding_(config.vocab_size, config.hidden_size, starts()),
        position_embedding_(config.max_position_embeddings, config.hidden_size,
                            starts(nn::embedding_use::whole)),
        type_embedding_(config.type_vocab_size, config.hidden_size,
                        starts(nn::embedding_use::whole)),
        norm_(config.hidden_size, {.epsilon = config.layer_norm_eps}),
        dropout_(config.hidden_dropout_prob),
        pooler_(config.hidden_size, config.hidden_size, {.start = starts().start}),
        classifier_dropout_(config.hidden_dropout_prob),
        classifier_(config.hidden_size, config.num_labels, {.start = starts().start}) {
    require(config.num_hidden_layers > 0, "bert: num_hidden_layers is 0");
    layers_.reserve(config.num_hidden_layers);
    for (std::size_t i = 0; i < config.num_hidden_layers; ++i) layers_.emplace_back(config);
  }

  [[nodiscard]] const bert_config& config() const noexcept { return config_; }

  /// Layers keep only their inputs and run again in backward: see autograd/checkpoint.hpp.
  void gradient_checkpointing_enable() noexcept { checkpointing_.enable(); }
  void gradient_checkpointing_disable() noexcept { checkpointing_.disable(); }

  /// The logits (batch, num_labels) of token ids (batch, positions) without padding, all of the
  /// first token type. Throws usage_error when there are more positions than
  /// max_position_embeddings or an id is outside the vocabulary.
  template <std::integral Id>
  [[nodiscard]] variable<T> forward(const tensor<Id>& ids) {
    return classify(ids, {}, first_type());
  }
  /// mask (batch, positions) is 0 at padding.
  template <std::integral Id, std::integral Mask>
  [[nodiscard]] variable<T> forward(const tensor<Id>& ids, const tensor<Mask>& mask) {
    return classify(ids, mask.template cast<std::uint8_t>(), first_type());
  }
  /// token_types (batch, positions): which of two texts a token belongs to.
  template <std::integral Id, std::integral Mask, std::integral Type>
  [[nodiscard]] variable<T> forward(const tensor<Id>& ids, const tensor<Mask>& mask,
                                    const tensor<Type>& token_types) {
    return classify(ids, mask.template cast<std::uint8_t>(), type_embedding_(token_types));
  }

  [[nodiscard]] variable<T> forward(const bert_input& of) {
    return forward(of.input_ids, of.attention_mask);
  }

  /// The forward pass in pieces: the embeddings, each layer, and the classifier. Input is a batch
  /// with input_ids and attention_mask, all of the first token type.
  template <typename Input = bert_input>
  [[nodiscard]] nn::model_blocks<Input, T> blocks() {
    nn::model_blocks<Input, T> all;
    all.push_back({"embeddings", {"bert.embeddings"}, [this](const variable<T>&, const Input& of) {
                     return embed(of.input_ids, first_type());
                   }});
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::string number = std::to_string(i);
      all.push_back({"layer." + number, {"bert.encoder.layer." + number},
                     [this, i](const variable<T>& x, const Input& of) {
                       return layer(i, x, of.attention_mask);
                     }});
    }
    all.push_back({"classifier", {"bert.pooler", "dropout", "classifier"},
                   [this](const variable<T>& x, const Input&) { return logits(x); }});
    return all;
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("bert.embeddings.word_embeddings", token_embedding_);
    visit("bert.embeddings.position_embeddings", position_embedding_);
    visit("bert.embeddings.token_type_embeddings", type_embedding_);
    visit("bert.embeddings.LayerNorm", norm_);
    visit("bert.embeddings.dropout", dropout_);
    visit("bert.encoder.layer", layers_);
    visit("bert.pooler.dense", pooler_);
    visit("dropout", classifier_dropout_);
    visit("classifier", classifier_);
    visit.constant_name("bert.embeddings.position_ids");
    visit.optional_prefix("bert");  // BertModel's names
  }

 private:
  [[nodiscard]] nn::embedding_options starts(
      nn::embedding_use use = nn::embedding_use::lookups) const {
    return {.start = nn::init::normal(0, config_.initializer_range), .use = use};
  }
  [[nodiscard]] variable<T> first_type() const {
    return slice<T>(type_embedding_.weight(), 0, 0, 1);
  }

  template <std::integral Id>
  [[nodiscard]] variable<T> classify(const tensor<Id>& ids, const tensor<std::uint8_t>& mask,
                                     const variable<T>& types) {
    variable<T> x = embed(ids, types);
    for (std::size_t i = 0; i < layers_.size(); ++i) x = layer(i, x, mask);
    return logits(x);
  }
  template <std::integral Id>
  [[nodiscard]] variable<T> embed(const tensor<Id>& ids, const variable<T>& types) {
    const std::size_t length = ids.rank() == 2 ? ids.extent(1) : 0;
    require(length > 0 && length <= config_.max_position_embeddings,
            "bert: token ids of shape {} are not (batch, positions) with 1 to {} positions",
            to_string(ids.shape()), config_.max_position_embeddings);
    const variable<T> places = slice<T>(position_embedding_.weight(), 0, 0, length) + types;
    return dropout_(norm_(token_embedding_(ids) + places));
  }
  [[nodiscard]] variable<T> layer(std::size_t i, const variable<T>& x,
                                  const tensor<std::uint8_t>& mask) {
    const bool last = i + 1 == layers_.size();
    return checkpointing_.run(layers_[i], x, attention_options<T>{.key_mask = mask},
                              last ? bert_positions::first : bert_positions::all);
  }
  [[nodiscard]] variable<T> logits(const variable<T>& x) {
    return classifier_(classifier_dropout_(tanh(pooler_(squeeze(x, 1)))));
  }

  bert_config config_;
  nn::embedding<T> token_embedding_, position_embedding_, type_embedding_;
  nn::layer_norm<T> norm_;
  nn::dropout dropout_;
  std::vector<bert_layer<T>> layers_;
  nn::checkpointing checkpointing_;
  nn::linear<T> pooler_;
  nn::dropout classifier_dropout_;
  nn::linear<T> classifier_;
};

}  // namespace parx::models
