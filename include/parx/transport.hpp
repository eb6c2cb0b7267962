// L4: how bytes travel between ranks.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/transport/hybrid.hpp>     // IWYU pragma: export
#include <parx/transport/inproc.hpp>     // IWYU pragma: export
#include <parx/transport/solo.hpp>       // IWYU pragma: export
#include <parx/transport/transport.hpp>  // IWYU pragma: export
