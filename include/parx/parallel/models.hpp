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

namespace parx::inline PARX_ABI {

extern template class typed_model<models::bert_classifier<float>>;
extern template class typed_model<models::cnn<float>>;
extern template class typed_model<models::encoder_decoder<float>>;
extern template class typed_model<models::gpt<float>>;
extern template class typed_model<models::llama<float>>;

}  // namespace parx
#endif
