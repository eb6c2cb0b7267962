// The definitions of launch's non-template functions, for parx/src.hpp.
#pragma once

#include <parx/launch/detail/init_impl.hpp>
#include <parx/launch/detail/launch_env_impl.hpp>
