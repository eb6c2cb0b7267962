// The wrappers that models.hpp declares.
#pragma once

#include <parx/models.hpp>
#include <parx/parallel/models.hpp>

namespace parx::inline PARX_ABI {

template class typed_model<models::bert_classifier<float>>;
template class typed_model<models::cnn<float>>;
template class typed_model<models::encoder_decoder<float>>;
template class typed_model<models::gpt<float>>;
template class typed_model<models::llama<float>>;

}  // namespace parx
