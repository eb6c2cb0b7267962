// The version of parx, written once: CMake reads it from here. Every chapter includes this first,
// so that a compiler that is set to an older C++ reports nothing else.
#pragma once

#if __cplusplus < 202002L
#error parx needs C++20: compile with -std=c++20
#include <parx needs C++20>  // There is no such header: the errors end here.
#endif

#define PARX_VERSION_MAJOR 0
#define PARX_VERSION_MINOR 1
#define PARX_VERSION_PATCH 0
#define PARX_VERSION "0.1.0"
