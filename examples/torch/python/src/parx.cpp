// parx's compiled part, beside the module's own file, so that two cores share the work.
#include <parx/core/version.hpp>

#include <parx/comm/src.hpp>
#include <parx/core/src.hpp>
#include <parx/launch/src.hpp>
#include <parx/trace/src.hpp>
#include <parx/types/src.hpp>
