// The mixed precision chapter: grad_scaler; autocast comes with the operations that know it.
#pragma once

#include <parx/amp/grad_scaler.hpp>  // IWYU pragma: export
