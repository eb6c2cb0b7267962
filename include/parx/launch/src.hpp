// The definitions of launch's non-template functions, for parx/src.hpp.
#pragma once

#include <parx/launch/detail/detect_launch_impl.hpp>
#include <parx/launch/detail/init_impl.hpp>
