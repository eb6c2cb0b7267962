// L4: data sets, and the samplers and loaders that distribute their samples over ranks. Independent
// of communication.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/data/any_dataset.hpp>               // IWYU pragma: export
#include <parx/data/augment.hpp>                   // IWYU pragma: export
#include <parx/data/dataset.hpp>                   // IWYU pragma: export
#include <parx/data/find_file.hpp>                 // IWYU pragma: export
#include <parx/data/formats/cifar.hpp>             // IWYU pragma: export
#include <parx/data/formats/csv.hpp>               // IWYU pragma: export
#include <parx/data/formats/gzip.hpp>              // IWYU pragma: export
#include <parx/data/formats/idx.hpp>               // IWYU pragma: export
#include <parx/data/formats/image_bytes.hpp>       // IWYU pragma: export
#include <parx/data/formats/jsonl.hpp>             // IWYU pragma: export
#include <parx/data/formats/lines.hpp>             // IWYU pragma: export
#include <parx/data/formats/token_shards.hpp>      // IWYU pragma: export
#include <parx/data/generated.hpp>                 // IWYU pragma: export
#include <parx/data/group_by_length.hpp>           // IWYU pragma: export
#include <parx/data/images.hpp>                    // IWYU pragma: export
#include <parx/data/instances.hpp>                 // IWYU pragma: export
#include <parx/data/language_model.hpp>            // IWYU pragma: export
#include <parx/data/loader.hpp>                    // IWYU pragma: export
#include <parx/data/sampler.hpp>                   // IWYU pragma: export
#include <parx/data/sequence_pairs.hpp>            // IWYU pragma: export
#include <parx/data/source_target.hpp>             // IWYU pragma: export
#include <parx/data/standardizer.hpp>              // IWYU pragma: export
#include <parx/data/subset.hpp>                    // IWYU pragma: export
#include <parx/data/table.hpp>                     // IWYU pragma: export
#include <parx/data/text/append_text.hpp>          // IWYU pragma: export
#include <parx/data/text/byte_bpe.hpp>             // IWYU pragma: export
#include <parx/data/text/character_tokenizer.hpp>  // IWYU pragma: export
#include <parx/data/text/encoding.hpp>             // IWYU pragma: export
#include <parx/data/text/llama_tokenizer.hpp>      // IWYU pragma: export
#include <parx/data/text/padding.hpp>              // IWYU pragma: export
#include <parx/data/text/records.hpp>              // IWYU pragma: export
#include <parx/data/text/token_cache.hpp>          // IWYU pragma: export
#include <parx/data/text/token_rows.hpp>           // IWYU pragma: export
#include <parx/data/text/tokenizer.hpp>            // IWYU pragma: export
#include <parx/data/text/unicode.hpp>              // IWYU pragma: export
#include <parx/data/text/vocabulary.hpp>           // IWYU pragma: export
#include <parx/data/text/vocabulary_builder.hpp>   // IWYU pragma: export
#include <parx/data/text/wordpiece.hpp>            // IWYU pragma: export
#include <parx/data/text_classification.hpp>       // IWYU pragma: export
