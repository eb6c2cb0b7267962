// Everything. A program compiles faster with the chapters it needs.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

// IWYU pragma: begin_exports
#include <parx/core.hpp>
#include <parx/trace.hpp>
#include <parx/types.hpp>
#include <parx/store.hpp>
#include <parx/transport.hpp>
#include <parx/comm.hpp>
#include <parx/comm/collectives/coalesced.hpp>
#include <parx/comm/explain.hpp>
#include <parx/comm/threads.hpp>
#include <parx/launch.hpp>
#include <parx/mesh.hpp>
#include <parx/tensor.hpp>
#include <parx/autograd.hpp>
#include <parx/data.hpp>
#include <parx/nn.hpp>
#include <parx/models.hpp>
#include <parx/ops.hpp>
#include <parx/optim.hpp>
#include <parx/checkpoint.hpp>
#include <parx/plan.hpp>
#include <parx/reduction.hpp>
#include <parx/ddp.hpp>
#include <parx/parallel.hpp>
#include <parx/pipeline.hpp>
#include <parx/ddp/hook_powersgd.hpp>
#include <parx/checkpoint/save.hpp>
#include <parx/ddp/sync_batch_norm.hpp>
#include <parx/fsdp.hpp>
#include <parx/tensor_parallel.hpp>
#include <parx/amp.hpp>
#include <parx/train.hpp>
#include <parx/trees.hpp>
// IWYU pragma: end_exports
