// The compiled part of data, for parx/src.hpp.
#pragma once

#include <parx/data/detail/generated_impl.hpp>
#include <parx/data/detail/images_impl.hpp>
#include <parx/data/detail/sequence_pairs_impl.hpp>
#include <parx/data/detail/text_classification_impl.hpp>
#include <parx/data/formats/detail/cifar_impl.hpp>
#include <parx/data/formats/detail/csv_impl.hpp>
#include <parx/data/formats/detail/gzip_impl.hpp>
#include <parx/data/formats/detail/idx_impl.hpp>
#include <parx/data/formats/detail/lines_impl.hpp>
#include <parx/data/formats/detail/token_shards_impl.hpp>
#include <parx/data/instances.hpp>
#include <parx/data/text/detail/byte_bpe_impl.hpp>
#include <parx/data/text/detail/character_tokenizer_impl.hpp>
#include <parx/data/text/detail/encoding_impl.hpp>
#include <parx/data/text/detail/llama_tokenizer_impl.hpp>
#include <parx/data/text/detail/records_impl.hpp>
#include <parx/data/text/detail/token_cache_impl.hpp>
#include <parx/data/text/detail/token_rows_impl.hpp>
#include <parx/data/text/detail/vocabulary_builder_impl.hpp>
#include <parx/data/text/detail/vocabulary_impl.hpp>
#include <parx/data/text/detail/wordpiece_impl.hpp>

namespace parx::inline PARX_ABI::data {
PARX_DATA_INSTANCES(, image_dataset)
PARX_DATA_INSTANCES(, language_model)
PARX_DATA_INSTANCES(, sequence_pairs)
PARX_DATA_INSTANCES(, text_classification)
}  // namespace parx::data
