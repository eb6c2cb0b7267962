// L6: models with the parameter names of Hugging Face: BERT, GPT-2, Llama; an encoder-decoder;
// text generation with them; a CNN for images.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/models/beam_search.hpp>             // IWYU pragma: export
#include <parx/models/bert.hpp>                    // IWYU pragma: export
#include <parx/models/cnn.hpp>                     // IWYU pragma: export
#include <parx/models/decoding_cache.hpp>          // IWYU pragma: export
#include <parx/models/encoder_decoder.hpp>         // IWYU pragma: export
#include <parx/models/encoder_decoder_config.hpp>  // IWYU pragma: export
#include <parx/models/generate.hpp>                // IWYU pragma: export
#include <parx/models/gpt.hpp>                     // IWYU pragma: export
#include <parx/models/llama.hpp>                   // IWYU pragma: export
#include <parx/models/pointer.hpp>                 // IWYU pragma: export
#include <parx/models/source_cache.hpp>            // IWYU pragma: export
