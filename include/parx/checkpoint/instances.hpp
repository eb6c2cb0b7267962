// The template instances of checkpoint in the compiled form (see parx/src.hpp): the two kinds of
// files, and the state of the optimizers.
#pragma once

#include <vector>

#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/checkpoint/state_entries.hpp>

namespace parx::inline PARX_ABI::optim {

template <typename T>
class adamw;
template <typename T>
class sgd;

}  // namespace parx::optim

#define PARX_CHECKPOINT_FILE(form, File)                                                       \
  form template state_fit fit_state<File>(std::vector<state_entry>, const File&, state_match); \
  form template state_report load_entries<File>(state_fit, const File&, state_match);

#define PARX_CHECKPOINT_STATE(form, Source)                                                    \
  form template std::vector<state_entry> state_entries<state_access::read, Source>(Source&);   \
  form template std::vector<state_entry> state_entries<state_access::update, Source>(Source&); \
  form template std::vector<state_entry> state_entries<state_access::overwrite, Source>(Source&);

#define PARX_CHECKPOINT_INSTANCES(form)            \
  PARX_CHECKPOINT_FILE(form, safetensors_file)     \
  PARX_CHECKPOINT_FILE(form, safetensors_shards)   \
  PARX_CHECKPOINT_STATE(form, optim::adamw<float>) \
  PARX_CHECKPOINT_STATE(form, optim::sgd<float>)

#ifdef PARX_SEPARATE_COMPILATION
namespace parx::inline PARX_ABI::detail {
PARX_CHECKPOINT_INSTANCES(extern)
}  // namespace parx::detail
#endif
