// The definitions of train, for parx/src.hpp.
#pragma once

#include <parx/train/detail/chart_impl.hpp>
#include <parx/train/detail/report_impl.hpp>
#include <parx/train/detail/run_log_impl.hpp>
#include <parx/train/detail/state_impl.hpp>
