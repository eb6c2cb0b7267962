// The compiled part of trees, for parx/src.hpp.
#pragma once

#include <parx/trees/detail/model_file_impl.hpp>
#include <parx/trees/detail/read_impl.hpp>
