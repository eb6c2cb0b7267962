// The models of parx in any layout. What parallel compiles for a model is most of the time that a
// program takes to compile, and parx::compiled has it ready for these.
#pragma once

#include <parx/parallel/parallel.hpp>

#ifdef PARX_SEPARATE_COMPILATION
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
