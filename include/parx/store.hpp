// L2: key-value stores through which ranks find each other.
#pragma once

#include <parx/store/store.hpp>  // IWYU pragma: export
