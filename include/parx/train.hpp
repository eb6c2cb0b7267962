// L6: the training loop with everything around it, and what a run leaves behind.
#pragma once

#include <parx/train/tensorboard.hpp>  // IWYU pragma: export
