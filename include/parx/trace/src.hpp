// The compiled part of trace, for parx/src.hpp.
#pragma once

#include <parx/trace/detail/event_impl.hpp>
