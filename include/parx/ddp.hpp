// L8: data parallel training. Most programs use parx::parallel, which has every layout. Left out,
// since they take longer to compile, are <parx/checkpoint.hpp> (save and load), <parx/ddp/raw.hpp>
// (a model of plain arrays), <parx/ddp/hook_powersgd.hpp> and <parx/ddp/sync_batch_norm.hpp>.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/autograd/distributed_module.hpp>  // IWYU pragma: export
#include <parx/comm.hpp>                         // IWYU pragma: export
#include <parx/ddp/bucket.hpp>                   // IWYU pragma: export
#include <parx/ddp/ddp.hpp>                      // IWYU pragma: export
#include <parx/ddp/hook.hpp>                     // IWYU pragma: export
#include <parx/ddp/hook_compress.hpp>            // IWYU pragma: export
#include <parx/launch.hpp>                       // IWYU pragma: export
#include <parx/reduction.hpp>                    // IWYU pragma: export
