// The definitions of ddp, for parx/src.hpp.
#pragma once

#include <parx/ddp/detail/gradient_buckets_impl.hpp>
#include <parx/ddp/detail/layout_impl.hpp>
