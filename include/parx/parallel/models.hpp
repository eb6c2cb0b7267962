// The models of parx in any layout. What parallel compiles for a model is most of the time that a
// program takes to compile; PARX_COMPILED_MODELS says that a library has it ready for these, as
// parx::models does.
#pragma once

#include <parx/parallel/parallel.hpp>

#ifdef PARX_COMPILED_MODELS
#include <parx/models/bert.hpp>
#include <parx/models/cnn.hpp>
#include <parx/models/encoder_decoder.hpp>
#include <parx/models/gpt.hpp>
#include <parx/models/llama.hpp>

namespace parx::inline PARX_ABI {

extern template class parallel<models::bert_classifier<float>>;
extern template class parallel<models::cnn<float>>;
extern template class parallel<models::encoder_decoder<float>>;
extern template class parallel<models::gpt<float>>;
extern template class parallel<models::llama<float>>;

}  // namespace parx
#endif
