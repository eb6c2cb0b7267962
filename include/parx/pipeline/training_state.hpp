// The functions of a pipeline that a trainer needs besides step() (train/wrapped_model.hpp), and
// saving and loading. Every rank writes and reads its stages. A checkpoint loads with any other
// number of stages, under a ddp, or in Python.
//
//   train::trainer trainer{pipe, optimizer, loader, [](auto& p, auto& batch) {
//     return p.step(batch, criterion);
//   }, options};
//   parx::save(pipe, "out/model");     // a folder, see checkpoint/sharded.hpp
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/sharded.hpp>
#include <parx/checkpoint/whole_file.hpp>
#include <parx/core/source.hpp>
#include <parx/pipeline/norm.hpp>
#include <parx/pipeline/pipeline.hpp>

namespace parx::inline PARX_ABI {

/// Which of the job's ranks writes what. Copies of a parameter are on the data-parallel ranks of a
/// stage, on stages that share it, and, if it is not cut, on the tensor-parallel ranks. Valid while
/// the pipeline lives.
template <typename Model, typename Input, typename T>
[[nodiscard]] sharding sharded_over(pipeline<Model, Input, T>& pipe) {
  const auto place_in = [](const process_group& group) {
    return shard_place{static_cast<std::size_t>(group.rank()),
                       static_cast<std::size_t>(group.size())};
  };
  // The place among outer.count groups of inner.count ranks each that all have the same.
  const auto within = [](shard_place outer, shard_place inner) {
    return shard_place{outer.index * inner.count + inner.index, outer.count * inner.count};
  };
  const shard_place replica = place_in(pipe.data_group());
  const shard_place cut = place_in(pipe.tensor_group());
  return {.file = place_in(pipe.job_group()),
          .copies =
              [=, &pipe](const std::string& name, const shard_spec&) {
                const shard_place same = within(pipe.user_of(name), pipe.replica_of(name));
                return pipe.is_cut(name) ? same : within(same, cut);
              },
          .others = within(replica, cut)};
}

/// Collective over the job. See save_sharded.
template <typename Model, typename Input, typename T>
void save(pipeline<Model, Input, T>& pipe, const std::string& folder,
          call_site site = call_site::current()) {
  save_sharded(pipe.job_group(), folder, sharded_over(pipe), pipe.module(), site);
}
/// Collective over the job. See load_sharded.
template <typename Model, typename Input, typename T>
state_report load(pipeline<Model, Input, T>& pipe, const std::filesystem::path& path,
                  state_match match = state_match::part,
                  call_site site = call_site::current()) {
  pipe.before_write();
  return load_sharded(pipe.job_group(), path, pipe.module(), match, site);
}

/// Collective. Adds this rank's stages to the checkpoint parts "model" and "optimizer". Model and
/// optimizer are borrowed.
template <typename Model, typename Input, typename T, typename Optimizer>
void add_training_state(pipeline<Model, Input, T>& pipe, Optimizer& optimizer,
                        checkpoint_parts& parts, call_site /*site*/ = call_site::current()) {
  const sharding how = sharded_over(pipe);
  parts.add_shard("model", how, pipe.module()).add_shard("optimizer", how, optimizer);
}

/// Local. Adds the checkpoint part `name`: state that belongs to the parameters, such as an
/// optim::ema. Borrowed.
template <typename Model, typename Input, typename T, typename State>
void add_part(pipeline<Model, Input, T>& pipe, const std::string& name, State& state,
              checkpoint_parts& parts) {
  parts.add_shard(name, sharded_over(pipe), state);
}

/// Local; call it on every rank. Throws as load_state does if the parameters do not match.
template <typename Model, typename Input, typename T>
void load_model(pipeline<Model, Input, T>& pipe, const saved_checkpoint& saved) {
  pipe.before_write();
  saved.load("model", pipe.module(), state_match::part);
}

/// Local; call it on every rank. The inverse of add_training_state.
template <typename Model, typename Input, typename T, typename Optimizer>
void load_training_state(pipeline<Model, Input, T>& pipe, Optimizer& optimizer,
                         const saved_checkpoint& saved) {
  load_model(pipe, saved);
  saved.load("optimizer", optimizer, state_match::part);
}

/// Collective. All ranks write the whole model to `path`, one safetensors file.
template <typename Model, typename Input, typename T>
void save_gathered(pipeline<Model, Input, T>& pipe, const std::string& path,
                   call_site site = call_site::current()) {
  save_whole(pipe.job_group(), path, sharded_over(pipe), pipe.module(), pipe.whole_model(), site);
}

template <typename Model, typename Input, typename T>
[[nodiscard]] std::string reason_to_stop_at_loss(pipeline<Model, Input, T>& /*wrapper*/) {
  return "a pipeline keeps a stage on each rank, and a lost rank's is gone";
}

}  // namespace parx
