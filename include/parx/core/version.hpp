// The version of parx. CMake reads it from here, so that it is written once.
#pragma once

#define PARX_VERSION_MAJOR 0
#define PARX_VERSION_MINOR 1
#define PARX_VERSION_PATCH 0
#define PARX_VERSION "0.1.0"
