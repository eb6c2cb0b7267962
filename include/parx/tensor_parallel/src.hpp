// The compiled part of tensor_parallel, for parx/src.hpp.
#pragma once

#include <parx/tensor_parallel/detail/explain_impl.hpp>
