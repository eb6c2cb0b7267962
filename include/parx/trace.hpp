// L0: what a run is doing, for people: the progress line.
#pragma once

#include <parx/trace/progress.hpp>  // IWYU pragma: export
