// L5: distributed data parallel training of any model. By name, since they need more than others
// want to compile: <parx/ddp/save.hpp> (save0: files), <parx/ddp/hook_state.hpp> (checkpoints of a
// hook), <parx/ddp/hook_powersgd.hpp> and <parx/ddp/sync_batch_norm.hpp> (parx's own tensors and
// layers).
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/autograd/distributed_module.hpp>  // IWYU pragma: export
#include <parx/comm.hpp>               // IWYU pragma: export
#include <parx/ddp/bucket.hpp>         // IWYU pragma: export
#include <parx/ddp/ddp.hpp>            // IWYU pragma: export
#include <parx/ddp/hook.hpp>           // IWYU pragma: export
#include <parx/ddp/hook_compress.hpp>  // IWYU pragma: export
#include <parx/ddp/instances.hpp>  // IWYU pragma: export
#include <parx/ddp/raw.hpp>            // IWYU pragma: export
#include <parx/ddp/reduction_group.hpp>  // IWYU pragma: export
#include <parx/launch.hpp>             // IWYU pragma: export
