// L3: key-value stores through which ranks find each other.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/store/dialect.hpp>     // IWYU pragma: export
#include <parx/store/hash.hpp>        // IWYU pragma: export
#include <parx/store/prefix.hpp>      // IWYU pragma: export
#include <parx/store/store.hpp>       // IWYU pragma: export
#include <parx/store/tcp.hpp>         // IWYU pragma: export
#include <parx/store/tcp_server.hpp>  // IWYU pragma: export
