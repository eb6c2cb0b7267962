// The compiled part of parallel, for parx/src.hpp.
#pragma once

#include <parx/parallel/detail/layout_impl.hpp>
