// The wrappers that models.hpp declares.
#pragma once

#include <parx/models.hpp>
#include <parx/parallel/models.hpp>

namespace parx::inline PARX_ABI {

template class parallel<models::bert_classifier<float>>;
template class parallel<models::cnn<float>>;
template class parallel<models::encoder_decoder<float>>;
template class parallel<models::gpt<float>>;
template class parallel<models::llama<float>>;

}  // namespace parx
