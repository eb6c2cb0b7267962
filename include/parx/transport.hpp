// L4: how bytes travel between ranks (links), and what ranks know of each other (job).
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/transport/hybrid.hpp>  // IWYU pragma: export
#include <parx/transport/inproc.hpp>  // IWYU pragma: export
#include <parx/transport/job.hpp>     // IWYU pragma: export
#include <parx/transport/links.hpp>   // IWYU pragma: export
