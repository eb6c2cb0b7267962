// The compiled part of comm, for parx/src.hpp.
#pragma once

#include <parx/comm/detail/abort_reason_impl.hpp>
#include <parx/comm/detail/issue/issue_impl.hpp>
#include <parx/comm/detail/measure_impl.hpp>
#include <parx/comm/detail/process_group_impl.hpp>
#include <parx/comm/detail/work_impl.hpp>
