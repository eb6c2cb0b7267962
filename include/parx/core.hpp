// L1: errors, checks, deadlines, environment, logging. Everything else may include this.
#pragma once

#include <parx/core/version.hpp>  // IWYU pragma: export

#include <parx/core/check.hpp>         // IWYU pragma: export
#include <parx/core/compiled_for.hpp>  // IWYU pragma: export
#include <parx/core/deadline.hpp>      // IWYU pragma: export
#include <parx/core/descriptor.hpp>    // IWYU pragma: export
#include <parx/core/env.hpp>           // IWYU pragma: export
#include <parx/core/error.hpp>         // IWYU pragma: export
#include <parx/core/failure_record.hpp>  // IWYU pragma: export
#include <parx/core/joined_text.hpp>   // IWYU pragma: export
#include <parx/core/json.hpp>          // IWYU pragma: export
#include <parx/core/json_quote.hpp>    // IWYU pragma: export
#include <parx/core/json_reader.hpp>   // IWYU pragma: export
#include <parx/core/log.hpp>           // IWYU pragma: export
#include <parx/core/parallel_for.hpp>  // IWYU pragma: export
#include <parx/core/source.hpp>        // IWYU pragma: export
#include <parx/core/stopped.hpp>       // IWYU pragma: export
