// plans: plans for the models of parx, as in the papers.
//
// Between pairs of column and row, activations are whole on all ranks. With between_cuts::positions
// they are cut by positions (sequence parallel): that sends the same bytes, but a rank only keeps
// its positions. The number of positions must then be a multiple of the ranks.
#pragma once

#include <cstddef>
#include <type_traits>

#include <fmt/format.h>

#include <parx/core/check.hpp>
#include <parx/models/bert.hpp>
#include <parx/models/encoder_decoder.hpp>
#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>
#include <parx/tensor_parallel/plan.hpp>

namespace parx::inline PARX_ABI::tp {

using nn::between_cuts;

namespace detail {

/// Sets what the activations between the layers of a plan are, and adds `others` if positions are
/// cut.
[[nodiscard]] inline plan between(between_cuts what, plan lines, const plan& others) {
  if (what == between_cuts::whole) return lines;
  for (plan_line& each : lines) {
    (each.rule.how == nn::cut::vocabulary ? each.rule.output : each.rule.between) = what;
  }
  lines.insert(lines.end(), others.begin(), others.end());
  return lines;
}

}  // namespace detail

/// Whether ready_plan() knows the model.
template <typename Model>
inline constexpr bool has_ready_plan = false;
template <typename T>
inline constexpr bool has_ready_plan<models::gpt<T>> = true;
template <typename T>
inline constexpr bool has_ready_plan<models::llama<T>> = true;
template <typename T>
inline constexpr bool has_ready_plan<models::bert_classifier<T>> = true;
template <typename T>
inline constexpr bool has_ready_plan<models::encoder_decoder<T>> = true;

/// For another model: a compile-time error that says what to write.
template <typename Model>
[[nodiscard]] plan ready_plan(const Model&, between_cuts = between_cuts::whole) {
  static_assert(!std::is_class_v<Model>,
                "ready_plan knows gpt, llama, bert_classifier and encoder_decoder. For another "
                "model write parx::tp::plan{{\"in\", parx::tp::column}, {\"out\", parx::tp::row}}: "
                "patterns over the names of its members (of a sequential the numbers), see "
                "tensor_parallel/plan.hpp");
  return {};
}

template <typename T>
[[nodiscard]] plan ready_plan(const models::gpt<T>& model,
                              between_cuts between = between_cuts::whole) {
  const std::size_t count = model.config().n_head;
  nn::layer_cut qkv = of_heads(column, count);
  qkv.blocks = 3;
  return detail::between(between,
                         {{"*.wte", tied_vocab},
                          {"*.attn.c_attn", qkv},
                          {"*.attn", heads},
                          {"*.attn.c_proj", of_heads(row, count)},
                          {"*.mlp.c_fc", column},
                          {"*.mlp.c_proj", row}},
                         {{"*.drop", of_heads(to_sequence, model.config().n_embd)},
                          {"*.ln_*", sequence},
                          {"*.resid_dropout", sequence},
                          {"*.mlp.dropout", sequence}});
}

template <typename T>
[[nodiscard]] plan ready_plan(const models::llama<T>& model,
                              between_cuts between = between_cuts::whole) {
  const models::llama_config& c = model.config();
  nn::layer_cut keys = of_heads(column, c.num_key_value_heads);
  keys.query_heads = c.num_attention_heads;
  const bool tied = c.embeddings == models::word_embeddings::tied;
  plan lines{{"*.embed_tokens", tied ? tied_vocab : vocab},
             {"*.q_proj", of_heads(column, c.num_attention_heads)},
             {"*.k_proj", keys},
             {"*.v_proj", keys},
             {"*.self_attn", heads},
             {"*.o_proj", of_heads(row, c.num_attention_heads)},
             {"*.gate_proj", column},
             {"*.up_proj", column},
             {"*.down_proj", row}};
  if (!tied) lines.push_back({"lm_head", head});
  lines.front().rule.between = between;  // the layers directly follow the embedding
  return detail::between(between, lines, {{"*norm", sequence}});
}

/// The last layer only computes the first position, so its input has all positions.
template <typename T>
[[nodiscard]] plan ready_plan(const models::bert_classifier<T>& model,
                              between_cuts between = between_cuts::whole) {
  const models::bert_config& c = model.config();
  const nn::layer_cut part = of_heads(column, c.num_attention_heads);
  plan lines{{"*.word_embeddings", vocab}};
  for (std::size_t i = 0; i < c.num_hidden_layers; ++i) {
    const bool last = i + 1 == c.num_hidden_layers;
    const auto add = [&](const char* layer, nn::layer_cut rule, bool of_first_position) {
      rule.between = last ? between_cuts::whole : between;
      rule.positions_used = last && of_first_position ? 1 : 0;
      lines.push_back({formatted("bert.encoder.layer.{}.{}", i, layer), rule});
    };
    add("attention.self.query", part, false);
    add("attention.self.key", part, false);
    add("attention.self.value", part, false);
    add("attention.self", heads, false);
    add("attention.output.dense", of_heads(row, c.num_attention_heads), true);
    add("intermediate.dense", column, true);
    add("output.dense", row, true);
    if (between == between_cuts::whole || last) continue;
    add("attention.output.dropout", sequence, false);
    add("attention.output.LayerNorm", sequence, false);
    add("output.dropout", sequence, false);
    add("output.LayerNorm", i + 2 == c.num_hidden_layers ? from_sequence : sequence, false);
  }
  if (between == between_cuts::positions && c.num_hidden_layers > 1)
    lines.push_back({"bert.embeddings.dropout", of_heads(to_sequence, c.hidden_size)});
  return lines;
}

/// Throws usage_error for a model with copying.
template <typename T>
[[nodiscard]] plan ready_plan(const models::encoder_decoder<T>& model,
                              between_cuts between = between_cuts::whole) {
  const models::encoder_decoder_config& c = model.config();
  require(c.copying == models::copying::none,
          "there is no tensor parallel plan for an encoder_decoder with copying: its pointer needs "
          "the logits of the whole vocabulary");
  // Encoder and decoder share the embedding; the decoder's second attention also reads the
  // encoder's result.
  plan lines{{"shared", of_inputs(tied_vocab, 2)},
             {"*.self_attn", column},
             {"*.multihead_attn", of_inputs(column, 2)},
             {"*.out_proj", of_heads(row, c.attention_heads)},
             {"*.linear1", column},
             {"*.linear2", row}};
  plan inner;  // the dropout of activations that are cut by columns
  const auto add = [&](const char* stack, std::size_t layers) {
    for (std::size_t i = 0; i < layers; ++i)
      inner.push_back({formatted("{}.layers.{}.dropout", stack, i), of_heads(column, c.ffn_dim)});
  };
  add("encoder", c.encoder_layers);
  add("decoder", c.decoder_layers);
  plan outer{{"dropout", of_heads(to_sequence, c.d_model)},
             {"source_dropout", of_heads(to_sequence, c.d_model)},
             {"*.norm*", sequence}};
  for (const char* each : {"*.dropout1", "*.dropout2", "*.dropout3"})
    outer.push_back({each, sequence});
  lines = detail::between(between, lines, outer);
  lines.insert(lines.end(), inner.begin(), inner.end());
  return lines;
}

}  // namespace parx::tp
