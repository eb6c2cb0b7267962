// mesh: the ranks of a job as a grid with named axes.
#pragma once

#include <parx/core/version.hpp>

#include <parx/mesh/layout.hpp>  // IWYU pragma: export
#include <parx/mesh/mesh.hpp>    // IWYU pragma: export
