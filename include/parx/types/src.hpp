// The compiled part of types, for parx/src.hpp.
#pragma once

#include <parx/types/detail/reduce_impl.hpp>
