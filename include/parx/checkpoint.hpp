// L7: models, optimizers and whole training states in files.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/checkpoint/difference.hpp>        // IWYU pragma: export
#include <parx/checkpoint/hook_state.hpp>        // IWYU pragma: export
#include <parx/checkpoint/manager.hpp>           // IWYU pragma: export
#include <parx/checkpoint/manifest.hpp>          // IWYU pragma: export
#include <parx/checkpoint/mapped.hpp>            // IWYU pragma: export
#include <parx/checkpoint/parts.hpp>             // IWYU pragma: export
#include <parx/checkpoint/pretrained.hpp>        // IWYU pragma: export
#include <parx/checkpoint/safetensors.hpp>       // IWYU pragma: export
#include <parx/checkpoint/save.hpp>              // IWYU pragma: export
#include <parx/checkpoint/saved_checkpoint.hpp>  // IWYU pragma: export
#include <parx/checkpoint/sharded.hpp>           // IWYU pragma: export
#include <parx/checkpoint/shards.hpp>            // IWYU pragma: export
#include <parx/checkpoint/state.hpp>             // IWYU pragma: export
#include <parx/checkpoint/state_dict.hpp>        // IWYU pragma: export
#include <parx/checkpoint/verify.hpp>            // IWYU pragma: export
#include <parx/checkpoint/whole_file.hpp>        // IWYU pragma: export
#include <parx/checkpoint/writable.hpp>          // IWYU pragma: export
