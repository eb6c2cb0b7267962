// L6: which rank of which job this process is, and how it joins the others. Includes parx/comm.hpp
// for the collectives. parxrun itself is a program beside the library (examples/tools/parxrun).
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/comm.hpp>                  // IWYU pragma: export
#include <parx/core/hostlist.hpp>         // IWYU pragma: export
#include <parx/launch/detect_launch.hpp>  // IWYU pragma: export
#include <parx/launch/init.hpp>           // IWYU pragma: export
#include <parx/launch/launch_env.hpp>     // IWYU pragma: export
#include <parx/launch/run.hpp>            // IWYU pragma: export
