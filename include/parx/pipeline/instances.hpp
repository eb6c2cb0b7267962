// The template instances of pipeline in the compiled form (see parx/src.hpp).
#pragma once

#include <parx/ddp/ddp.hpp>
#include <parx/fsdp/instances.hpp>
#include <parx/pipeline/pipeline_engine.hpp>
#include <parx/pipeline/runner.hpp>
#include <parx/pipeline/stage_reductions.hpp>
#include <parx/pipeline/stage_submodule.hpp>
#include <parx/pipeline/stage_wrapper.hpp>

#define PARX_PIPELINE_INSTANCES(form, T)       \
  form template class ddp<stage_submodule<T>>;      \
  form template class any_fsdp<stage_submodule<T>>; \
  form template class stage_wrapper<T>;        \
  form template class stage_reductions<T>;     \
  form template class stage_runner<T>;         \
  form template class pipeline_engine<T>;

#ifdef PARX_SEPARATE_COMPILATION
namespace parx::inline PARX_ABI {
PARX_PIPELINE_INSTANCES(extern, float)
PARX_PIPELINE_INSTANCES(extern, double)
}  // namespace parx
#endif
