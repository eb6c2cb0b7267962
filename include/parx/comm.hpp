// L3: process groups and their collectives: operation(group, input, output, {options}), or in place
// operation(group, data, {options}), and async_ before the name for one that goes on by itself. A
// buffer is anything with a pointer and a size: types/buffer.hpp. By name, since few programs want
// to compile them: <parx/comm/collectives/coalesced.hpp> (many small buffers in one operation),
// <parx/comm/explain.hpp> (why a group does an operation the way it does) and
// <parx/comm/threads.hpp> (ranks that are threads of one process, for tests and sandboxes).
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/comm/axis_extents.hpp>                // IWYU pragma: export
#include <parx/comm/block_counts.hpp>                // IWYU pragma: export
#include <parx/comm/collectives/all_gather.hpp>      // IWYU pragma: export
#include <parx/comm/collectives/all_reduce.hpp>      // IWYU pragma: export
#include <parx/comm/collectives/all_to_all.hpp>      // IWYU pragma: export
#include <parx/comm/collectives/any_shape.hpp>       // IWYU pragma: export
#include <parx/comm/collectives/barrier.hpp>         // IWYU pragma: export
#include <parx/comm/collectives/batch.hpp>           // IWYU pragma: export
#include <parx/comm/collectives/broadcast.hpp>       // IWYU pragma: export
#include <parx/comm/collectives/exscan.hpp>          // IWYU pragma: export
#include <parx/comm/collectives/gather.hpp>          // IWYU pragma: export
#include <parx/comm/collectives/message.hpp>         // IWYU pragma: export
#include <parx/comm/collectives/object.hpp>          // IWYU pragma: export
#include <parx/comm/collectives/reduce.hpp>          // IWYU pragma: export
#include <parx/comm/collectives/reduce_scatter.hpp>  // IWYU pragma: export
#include <parx/comm/collectives/scan.hpp>            // IWYU pragma: export
#include <parx/comm/collectives/scatter.hpp>         // IWYU pragma: export
#include <parx/comm/collectives/split.hpp>           // IWYU pragma: export
#include <parx/comm/collectives/warm_up.hpp>         // IWYU pragma: export
#include <parx/comm/host_pages.hpp>                  // IWYU pragma: export
#include <parx/comm/metrics.hpp>                     // IWYU pragma: export
#include <parx/comm/options.hpp>                     // IWYU pragma: export
#include <parx/comm/print.hpp>                       // IWYU pragma: export
#include <parx/comm/process_group.hpp>               // IWYU pragma: export
#include <parx/comm/shared_buffer.hpp>               // IWYU pragma: export
#include <parx/comm/user_op.hpp>                     // IWYU pragma: export
#include <parx/comm/work.hpp>                        // IWYU pragma: export
