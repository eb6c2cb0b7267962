// The compiled part of core, for parx/src.hpp.
#pragma once

#include <parx/core/detail/call_context_impl.hpp>
#include <parx/core/detail/error_impl.hpp>
#include <parx/core/detail/failure_record_impl.hpp>
#include <parx/core/detail/hostlist_impl.hpp>
#include <parx/core/detail/json_impl.hpp>
#include <parx/core/detail/json_reader_impl.hpp>
#include <parx/core/detail/log_impl.hpp>
#include <parx/core/detail/tls_impl.hpp>
#include <parx/core/detail/thread_pool_impl.hpp>
