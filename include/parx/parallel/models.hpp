// The models of parx in any layout. PARX_COMPILED_MODELS says that a library has ready what is
// compiled for each of them, as parx::models does.
#pragma once

#include <parx/parallel/parallel.hpp>

#ifdef PARX_COMPILED_MODELS
#include <parx/models/bert.hpp>
#include <parx/models/cnn.hpp>
#include <parx/models/encoder_decoder.hpp>
#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>

#define PARX_PART_INSTANCES(form, Part) \
  form template class nn::module<Part>; \
  form template class Part;

#define PARX_MODEL_INSTANCES(form, Model) \
  PARX_PART_INSTANCES(form, Model)        \
  form template class typed_model<Model>;

#define PARX_MODELS_INSTANCES(form)                          \
  PARX_PART_INSTANCES(form, models::gpt_block<float>)        \
  PARX_PART_INSTANCES(form, models::llama_layer<float>)      \
  PARX_MODEL_INSTANCES(form, models::bert_classifier<float>) \
  PARX_MODEL_INSTANCES(form, models::cnn<float>)             \
  PARX_MODEL_INSTANCES(form, models::encoder_decoder<float>) \
  PARX_MODEL_INSTANCES(form, models::gpt<float>)             \
  PARX_MODEL_INSTANCES(form, models::llama<float>)

namespace parx::inline PARX_ABI {
/// In parx::models.
PARX_MODELS_INSTANCES(extern)
}  // namespace parx
#endif
