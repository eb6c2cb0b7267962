// The definitions of train, for parx/src.hpp.
#pragma once

#include <parx/train/detail/chart_impl.hpp>
#include <parx/train/detail/meter_impl.hpp>
#include <parx/train/detail/record_impl.hpp>
#include <parx/train/detail/report_impl.hpp>
#include <parx/train/detail/run_book_impl.hpp>
#include <parx/train/detail/run_folder_impl.hpp>
#include <parx/train/detail/run_log_impl.hpp>
#include <parx/train/detail/run_plan_impl.hpp>
#include <parx/train/detail/same_settings_impl.hpp>
#include <parx/train/detail/signal_watch_impl.hpp>
#include <parx/train/detail/state_impl.hpp>
#include <parx/train/detail/tensorboard_impl.hpp>
