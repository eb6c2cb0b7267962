// The template instances of parallel in the compiled form (see parx/src.hpp): what a layout becomes
// is compiled once, whatever the model, and so is what a checkpoint has of it.
#pragma once

#include <vector>

#include <parx/checkpoint/instances.hpp>
#include <parx/parallel/any_parallel.hpp>
#include <parx/parallel/parallel_module.hpp>

#define PARX_PARALLEL_FILE(form, T, File)                                     \
  form template detail::state_fit detail::fit_target<parallel_module<T>, File>( \
      parallel_module<T>&, const File&, state_match);

#define PARX_PARALLEL_STATE(form, T, Access)                                                \
  form template std::vector<detail::state_entry>                                            \
  detail::state_entries<detail::state_access::Access, parallel_module<T>>(parallel_module<T>&); \
  form template std::vector<detail::state_entry>                                            \
  detail::state_entries<detail::state_access::Access, parallel_shapes<T>>(parallel_shapes<T>&);

#define PARX_PARALLEL_INSTANCES(form, T)        \
  form template class any_parallel<T>;          \
  PARX_PARALLEL_STATE(form, T, read)            \
  PARX_PARALLEL_STATE(form, T, update)          \
  PARX_PARALLEL_STATE(form, T, overwrite)       \
  PARX_PARALLEL_FILE(form, T, safetensors_file) \
  PARX_PARALLEL_FILE(form, T, safetensors_shards)

#ifdef PARX_SEPARATE_COMPILATION
namespace parx::inline PARX_ABI {
PARX_PARALLEL_INSTANCES(extern, float)
PARX_PARALLEL_INSTANCES(extern, double)
}  // namespace parx
#endif
