// L5: models and optimizers in safetensors files.
#pragma once

#include <parx/checkpoint/safetensors.hpp>  // IWYU pragma: export
#include <parx/checkpoint/state.hpp>        // IWYU pragma: export
