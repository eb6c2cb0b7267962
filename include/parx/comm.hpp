// L5: process groups and their collectives.
//
// A call is operation(group, input, output, {options}), or operation(group, data, {options}) in
// place; with async_ before the name it returns a work handle at once. A buffer is anything with a
// pointer and a size (types/buffer.hpp).
// Not included, because few programs need them: <parx/comm/collectives/coalesced.hpp> (many small
// buffers in one operation), <parx/comm/explain.hpp> (which algorithm a group uses, and why) and
// <parx/comm/threads.hpp> (ranks that are threads of one process, for tests and sandboxes).
#pragma once

#include <parx/core/version.hpp>  // first: checks the compiler version

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
