// The functions of a tensor_parallel that a trainer needs besides forward and backward
// (train/wrapped_model.hpp), and saving and loading. Every rank writes and reads its parts. A
// checkpoint loads with any other mesh, under a ddp or fsdp, in a pipeline, or in Python.
//
//   parx::save(parallel, "out/model");     // a folder, see checkpoint/sharded.hpp
//   parx::load(parallel, "out/model");     // or a Hugging Face folder, or a safetensors file
#pragma once

#include <filesystem>
#include <string>

#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/sharded.hpp>
#include <parx/checkpoint/whole_file.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor_parallel/clip.hpp>
#include <parx/tensor_parallel/tensor_parallel.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Call this before parameters are written by anything other than an optimizer: it invalidates the
/// gathered values of an fsdp.
template <typename Inner>
void before_write(tensor_parallel<Inner>& wrapper) {
  wrapper.module().for_each_parameter([](const std::string&, auto& part) {
    if (part.observer() != nullptr) part.observer()->before_write();
  });
}

}  // namespace detail

/// Which of the job's ranks writes what. Valid while the wrapper's parallelized lives.
template <typename Inner>
[[nodiscard]] sharding sharded_over(tensor_parallel<Inner>& wrapper) {
  return wrapper.cut().sharded_over(wrapper.job_group(), wrapper.inner().replica_group());
}

/// Collective over the job. See save_sharded.
template <typename Inner>
void save(tensor_parallel<Inner>& wrapper, const std::string& folder,
          call_site site = call_site::current()) {
  save_sharded(wrapper.job_group(), folder, sharded_over(wrapper), wrapper.module(), site);
}
/// Collective over the job. See load_sharded.
template <typename Inner>
state_report load(tensor_parallel<Inner>& wrapper, const std::filesystem::path& path,
                  state_match match = state_match::strict,
                  call_site site = call_site::current()) {
  detail::before_write(wrapper);
  return load_sharded(wrapper.job_group(), path, wrapper.module(), match, site);
}

/// Collective. Adds this rank's parts of the checkpoint parts "model" and "optimizer". Model and
/// optimizer are borrowed. Throws usage_error for a ddp whose hook has state.
template <typename Inner, typename Optimizer>
void add_training_state(tensor_parallel<Inner>& wrapper, Optimizer& optimizer,
                        checkpoint_parts& parts, call_site site = call_site::current()) {
  require(!wrapper.inner().has_hook_state(),
          "checkpoint at {}:{}: the ddp's hook has state, which cannot be saved if layers are cut: "
          "use a hook without state",
          site.file_name(), site.line);
  const sharding how = sharded_over(wrapper);
  parts.add_shard("model", how, wrapper.module()).add_shard("optimizer", how, optimizer);
}

/// Local. Adds the checkpoint part `name`: state that belongs to the parameters, such as an
/// optim::ema. Borrowed.
template <typename Inner, typename State>
void add_part(tensor_parallel<Inner>& wrapper, const std::string& name, State& state,
              checkpoint_parts& parts) {
  parts.add_shard(name, sharded_over(wrapper), state);
}

/// Local; call it on every rank. Throws as load_state does if the parameters do not match.
template <typename Inner>
void load_model(tensor_parallel<Inner>& wrapper, const saved_checkpoint& saved) {
  detail::before_write(wrapper);
  saved.load("model", wrapper.module());
}

/// Local; call it on every rank. The inverse of add_training_state.
template <typename Inner, typename Optimizer>
void load_training_state(tensor_parallel<Inner>& wrapper, Optimizer& optimizer,
                         const saved_checkpoint& saved) {
  load_model(wrapper, saved);
  saved.load("optimizer", optimizer);
}

/// Collective. All ranks write the whole model to `path`, one safetensors file.
template <typename Inner>
void save_gathered(tensor_parallel<Inner>& wrapper, const std::string& path,
                   call_site site = call_site::current()) {
  save_whole(wrapper.job_group(), path, sharded_over(wrapper), wrapper.module(), site);
}

template <typename Inner>
[[nodiscard]] std::string reason_to_stop_at_loss(tensor_parallel<Inner>& /*wrapper*/) {
  return "a tensor_parallel keeps a part of each layer on each rank, and a lost rank's is gone";
}

}  // namespace parx
