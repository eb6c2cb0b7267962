// L1: what a run is doing: spans and counters for a trace viewer, a progress line for people.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/trace/chrome.hpp>    // IWYU pragma: export
#include <parx/trace/event.hpp>     // IWYU pragma: export
#include <parx/trace/progress.hpp>  // IWYU pragma: export
