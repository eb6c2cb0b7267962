// encoder_decoder_config: the sizes of an encoder_decoder, and the config.json in which
// save_pretrained() keeps them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <parx/autograd/ops/linear.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/nn/transformer.hpp>

namespace parx::inline PARX_ABI::models {

/// Whether words of the source can be copied.
enum class copying {
  none,
  pointer,  ///< models::pointer, for sources and targets of one vocabulary
};

/// The names of Hugging Face's config.json where there is one.
struct encoder_decoder_config {
  std::size_t vocab_size = 8000;
  std::size_t d_model = 128;
  std::size_t encoder_layers = 2;
  std::size_t decoder_layers = 2;
  std::size_t attention_heads = 4;
  std::size_t ffn_dim = 512;
  std::size_t max_position_embeddings = 512;
  double dropout = 0.1;
  parx::activation activation = parx::activation::relu;
  nn::norm_order order = nn::norm_order::pre;
  models::copying copying = copying::none;
};

/// The sizes; activation and order are not stored, and stay what the program sets.
[[nodiscard]] inline json::value to_json(const encoder_decoder_config& c) {
  return json::object{{"model_type", "parx_encoder_decoder"},
                      {"vocab_size", c.vocab_size},
                      {"d_model", c.d_model},
                      {"encoder_layers", c.encoder_layers},
                      {"decoder_layers", c.decoder_layers},
                      {"attention_heads", c.attention_heads},
                      {"ffn_dim", c.ffn_dim},
                      {"max_position_embeddings", c.max_position_embeddings},
                      {"dropout", c.dropout},
                      {"copying", c.copying == copying::pointer ? "pointer" : "none"}};
}

/// The inverse of to_json(); fields that it does not store are those of `rest`. Throws
/// errc::bad_data naming what is missing or wrong, for instance in another model's config.json.
[[nodiscard]] inline encoder_decoder_config encoder_decoder_config_from(
    const json::value& config, encoder_decoder_config rest = {}) {
  try {
    for (auto [name, size] : {std::pair{"vocab_size", &rest.vocab_size},
                              {"d_model", &rest.d_model},
                              {"encoder_layers", &rest.encoder_layers},
                              {"decoder_layers", &rest.decoder_layers},
                              {"attention_heads", &rest.attention_heads},
                              {"ffn_dim", &rest.ffn_dim},
                              {"max_position_embeddings", &rest.max_position_embeddings}}) {
      *size = config.as<std::size_t>(name);
    }
    rest.dropout = config.as<double>("dropout");
    const std::string copies = config.as<std::string>("copying");
    if (copies != "none" && copies != "pointer")
      throw json::error(formatted("\"copying\" is \"{}\", not none or pointer", copies));
    rest.copying = copies == "pointer" ? copying::pointer : copying::none;
  } catch (const json::error& wrong) {
    throw_error(errc::bad_data, "config.json is not that of an encoder_decoder: {}.", wrong.what());
  }
  return rest;
}

}  // namespace parx::models
