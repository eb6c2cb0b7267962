// The definitions of train, for parx/src.hpp.
#pragma once

#include <parx/train/detail/chart_impl.hpp>
#include <parx/train/detail/report_impl.hpp>
