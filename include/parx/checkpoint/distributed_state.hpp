// Saving and loading a distributed_wrapper (parx::parallel, an fsdp or a pipeline), by hand or from
// a trainer (train/wrapped_model.hpp). Every rank writes and reads its parts, and never holds more.
// A checkpoint loads with any other number of ranks and any other wrapper, or in Python.
//
//   parx::save(fsdp, "out/model");     // a folder, see checkpoint/sharded.hpp
//   parx::load(fsdp, "out/model");     // or a Hugging Face folder, or a safetensors file
//
// Which rank writes what is the wrapper's sharded_over(), of <parx/fsdp.hpp> and the others.
#pragma once

#include <concepts>
#include <filesystem>
#include <string>

#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/pretrained.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/sharded.hpp>
#include <parx/checkpoint/whole_file.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// The optimizer of a stage: a file has the state of other stages' parameters, too.
template <typename Module, typename Optimizer>
struct optimizer_of_share : placed_state, shared_state {
  optimizer_of_share(Module& its_module, Optimizer& its_optimizer)
      : module(its_module), optimizer(its_optimizer) {}

  /// `name` is a parameter's path with the name of the state behind it, "0.weight.exp_avg".
  [[nodiscard]] bool is_elsewhere(const std::string& name) const {
    return module.is_elsewhere(name.substr(0, name.rfind('.')));
  }
  template <typename Visitor>
  void for_each_placed_state(Visitor&& visitor) {
    optimizer.for_each_placed_state(visitor);
  }

  Module& module;
  Optimizer& optimizer;
};

}  // namespace detail

/// Collective over the job. See load_sharded.
template <distributed Wrapper>
state_report load(Wrapper& wrapper, const std::filesystem::path& path,
                  state_match match = state_match::strict, call_site site = call_site::current()) {
  wrapper.before_write();
  return load_sharded(wrapper.job_group(), path, wrapper.module(), match, site);
}

/// Collective. Adds this rank's parts of the checkpoint parts "model" and "optimizer". Model and
/// optimizer are borrowed. Throws usage_error if there is other state, that of a ddp's hook.
template <distributed Wrapper, typename Optimizer>
void add_training_state(Wrapper& wrapper, Optimizer& optimizer, checkpoint_parts& parts,
                        call_site site = call_site::current()) {
  wrapper.require_resumable(site);
  wrapper.before_save(site);
  const sharding how = sharded_over(wrapper);
  parts.add_shard("model", how, wrapper.module()).add_shard("optimizer", how, optimizer);
}

/// Local. Adds this rank's part of the checkpoint part `name`: state that belongs to the
/// parameters, such as an optim::ema. Borrowed.
template <distributed Wrapper, typename State>
void add_part(Wrapper& wrapper, const std::string& name, State& state, checkpoint_parts& parts) {
  parts.add_shard(name, sharded_over(wrapper), state);
}

/// Local; call it on every rank. Throws as load_state does if the parameters do not match.
template <distributed Wrapper>
void load_model(Wrapper& wrapper, const saved_checkpoint& saved) {
  wrapper.before_write();
  saved.load("model", wrapper.module());
}

/// Local; call it on every rank. The inverse of add_training_state.
template <distributed Wrapper, typename Optimizer>
void load_training_state(Wrapper& wrapper, Optimizer& optimizer, const saved_checkpoint& saved) {
  load_model(wrapper, saved);
  if constexpr (std::derived_from<Wrapper, staged_wrapper>) {
    detail::optimizer_of_share share(wrapper.module(), optimizer);
    saved.load("optimizer", share);
  } else {
    saved.load("optimizer", optimizer);
  }
}

/// Collective. All ranks write the whole model to `path`, one safetensors file.
template <distributed Wrapper>
void save_gathered(Wrapper& wrapper, const std::string& path,
                   call_site site = call_site::current()) {
  wrapper.before_save(site);
  auto& all = [&]() -> auto& {
    if constexpr (std::derived_from<Wrapper, staged_wrapper>) return wrapper.whole_model();
    else return wrapper.module();
  }();
  save_whole(wrapper.job_group(), path, sharded_over(wrapper), wrapper.module(), all, site);
}

/// Collective over the job. A name that ends in .safetensors: one file with the whole model, of
/// which each rank writes its bytes. Else a folder, in which each rank writes its part: see
/// save_sharded.
template <distributed Wrapper>
void save(Wrapper& wrapper, const std::string& path, call_site site = call_site::current()) {
  if (path.ends_with(".safetensors")) return save_gathered(wrapper, path, site);
  wrapper.before_save(site);
  save_sharded(wrapper.job_group(), path, sharded_over(wrapper), wrapper.module(), site);
}
/// Collective over the job. A folder in Hugging Face's layout: config.json, the texts in `files`
/// (those of a tokenizer), and model.safetensors, of which each rank writes its bytes.
template <distributed Wrapper>
void save_pretrained(Wrapper& wrapper, const json::value& config,
                     const std::filesystem::path& folder, const text_files& files = {},
                     call_site site = call_site::current()) {
  detail::agree(&wrapper.job_group(), site, [&] {
    if (wrapper.job_group().rank() == 0) save_pretrained_config(config, folder, files);
  });
  save_gathered(wrapper, (folder / detail::model_file_name).string(), site);
}
/// Collective over the job. Model and optimizer, as a folder: to continue later, in any layout.
template <distributed Wrapper, typename Optimizer>
  requires requires(Optimizer& optimizer) { optimizer.targets(); }
void save(Wrapper& wrapper, Optimizer& optimizer, const std::string& folder,
          call_site site = call_site::current()) {
  checkpoint_parts parts;
  add_training_state(wrapper, optimizer, parts, site);
  save_sharded(wrapper.job_group(), folder, parts, 0, site);
}
/// Collective over the job. The inverse, of a folder that was saved in any layout.
template <distributed Wrapper, typename Optimizer>
  requires requires(Optimizer& optimizer) { optimizer.targets(); }
void load(Wrapper& wrapper, Optimizer& optimizer, const std::filesystem::path& folder,
          call_site site = call_site::current()) {
  detail::agree(&wrapper.job_group(), site, [&] {
    load_training_state(wrapper, optimizer, saved_checkpoint::open(folder));
  });
}

/// Why training cannot continue after a rank is lost; empty if it can.
template <distributed Wrapper>
[[nodiscard]] std::string reason_to_stop_at_loss(Wrapper& wrapper) {
  if constexpr (requires { wrapper.keeps_whole_replicas(); }) {
    if (wrapper.keeps_whole_replicas()) return {};
  }
  return formatted("{} on each rank, and a lost rank's is gone", Wrapper::keeps);
}

}  // namespace parx
