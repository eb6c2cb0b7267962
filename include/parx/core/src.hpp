// The compiled part of core, for parx/src.hpp.
#pragma once

#include <parx/core/detail/error_impl.hpp>
#include <parx/core/detail/file_text_impl.hpp>
#include <parx/core/detail/formatted_impl.hpp>
#include <parx/core/detail/joined_text_impl.hpp>
#include <parx/core/detail/json_impl.hpp>
#include <parx/core/detail/json_quote_impl.hpp>
#include <parx/core/detail/json_reader_impl.hpp>
#include <parx/core/detail/log_impl.hpp>
#include <parx/core/detail/printable_impl.hpp>
#include <parx/core/detail/tls_impl.hpp>
