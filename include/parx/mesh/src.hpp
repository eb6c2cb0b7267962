// The compiled part of mesh, for parx/src.hpp.
#pragma once

#include <parx/mesh/detail/layout_impl.hpp>
