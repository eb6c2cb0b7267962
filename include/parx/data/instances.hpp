// The template instances of data in the compiled form (see parx/src.hpp): the loaders of parx's own
// data sets.
#pragma once

#include <parx/data/images.hpp>
#include <parx/data/language_model.hpp>
#include <parx/data/loader.hpp>
#include <parx/data/sequence_pairs.hpp>
#include <parx/data/text_classification.hpp>

#define PARX_DATA_INSTANCES(form, Dataset)                         \
  form template class detail::ordered_prefetch<batch_of<Dataset>>; \
  form template class epoch_batches<batch_of<Dataset>>;            \
  form template class loader<Dataset>;

#ifdef PARX_SEPARATE_COMPILATION
namespace parx::inline PARX_ABI::data {
PARX_DATA_INSTANCES(extern, image_dataset)
PARX_DATA_INSTANCES(extern, language_model)
PARX_DATA_INSTANCES(extern, sequence_pairs)
PARX_DATA_INSTANCES(extern, text_classification)
}  // namespace parx::data
#endif
