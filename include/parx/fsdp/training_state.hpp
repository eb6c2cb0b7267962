// The functions of an fsdp that a trainer needs besides forward and backward
// (train/wrapped_model.hpp), and saving and loading. Every rank writes and reads its parts, and
// never holds more. A checkpoint loads with any other number of ranks, stage and choice of units,
// and under a ddp.
//
//   parx::save(fsdp, "out/model");     // a folder, see checkpoint/sharded.hpp
//   parx::load(fsdp, "out/model");     // or a Hugging Face folder, or a safetensors file
#pragma once

#include <filesystem>
#include <string>

#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/sharded.hpp>
#include <parx/checkpoint/whole_file.hpp>
#include <parx/core/source.hpp>
#include <parx/fsdp/clip.hpp>
#include <parx/fsdp/fsdp.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename Module>
[[nodiscard]] sharding sharding_of(fsdp<Module>& wrapper) {
  return sharded_over(wrapper.group(), wrapper.replica_group());
}

}  // namespace detail

/// Collective. See save_sharded.
template <typename Module>
void save(fsdp<Module>& wrapper, const std::string& folder,
          call_site site = call_site::current()) {
  wrapper.meet(site);
  save_sharded(wrapper.group(), folder, detail::sharding_of(wrapper), wrapper.module(), site);
}
/// Collective. See load_sharded.
template <typename Module>
state_report load(fsdp<Module>& wrapper, const std::filesystem::path& path,
                  state_match match = state_match::strict,
                  call_site site = call_site::current()) {
  wrapper.before_write();
  return load_sharded(wrapper.group(), path, wrapper.module(), match, site);
}

/// Collective. Adds this rank's shards of the checkpoint parts "model" and "optimizer". Model and
/// optimizer are borrowed.
template <typename Module, typename Optimizer>
void add_training_state(fsdp<Module>& wrapper, Optimizer& optimizer, checkpoint_parts& parts,
                        call_site site = call_site::current()) {
  wrapper.meet(site);
  const sharding how = detail::sharding_of(wrapper);
  parts.add_shard("model", how, wrapper.module()).add_shard("optimizer", how, optimizer);
}

/// Local. Adds this rank's shard of the checkpoint part `name`: state that belongs to the
/// parameters, such as an optim::ema. Borrowed.
template <typename Module, typename State>
void add_part(fsdp<Module>& wrapper, const std::string& name, State& state,
              checkpoint_parts& parts) {
  parts.add_shard(name, detail::sharding_of(wrapper), state);
}

/// Local; call it on every rank. Throws as load_state does if the parameters do not match.
template <typename Module>
void load_model(fsdp<Module>& wrapper, const saved_checkpoint& saved) {
  wrapper.before_write();
  saved.load("model", wrapper.module());
}

/// Local; call it on every rank. The inverse of add_training_state.
template <typename Module, typename Optimizer>
void load_training_state(fsdp<Module>& wrapper, Optimizer& optimizer,
                         const saved_checkpoint& saved) {
  load_model(wrapper, saved);
  saved.load("optimizer", optimizer);
}

/// Collective. All ranks write the whole model to `path`, one safetensors file.
template <typename Module>
void save_gathered(fsdp<Module>& wrapper, const std::string& path,
                   call_site site = call_site::current()) {
  wrapper.meet(site);
  save_whole(wrapper.group(), path, detail::sharding_of(wrapper), wrapper.module(), site);
}

template <typename Module>
[[nodiscard]] std::string reason_to_stop_at_loss(fsdp<Module>& /*wrapper*/) {
  return "an fsdp keeps a shard of the parameters on each rank, and a lost rank's is gone";
}

}  // namespace parx
