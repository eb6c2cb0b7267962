// save and load: a model in its wrapper (parx::parallel, a ddp, an fsdp or a pipeline), by hand or
// from a trainer (train/wrapped_model.hpp). Every rank writes and reads its parts, and never holds
// more. A checkpoint loads with any other number of ranks and any other wrapper, or in Python.
//
//   parx::save(model, "model.safetensors");  // one file with the whole model
//   parx::save(model, "out/model");          // a folder: see checkpoint/sharded.hpp
//   parx::load(model, "out/model");          // either, or a Hugging Face folder
//   parx::save(model, optimizer, "out/step-100");  // the training state, to go on later
//   parx::load(model, optimizer, "out/step-100");
//
// With an average of the parameters beside them, or other state, in any layout:
//
//   parx::checkpoint_parts parts;
//   add_training_state(model, optimizer, parts);
//   add_part(model, "ema", average, parts);
//   parx::save(world, parts, "out/step-100");
//
//   const auto saved = parx::saved_checkpoint::open("out/step-100");
//   load_training_state(model, optimizer, saved);
//   load_part(model, "ema", average, saved);
//
// Of a model that no wrapper of parx has, a sharding (shard_files.hpp) says what a rank has of it:
//
//   parx::save(world, tp.sharded_over(world, mesh["dp"]), model, "out/model");
//   parx::load(world, model, "out/model");
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/checkpoint/hook_state.hpp>
#include <parx/checkpoint/instances.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/pretrained.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/sharded.hpp>
#include <parx/checkpoint/whole_file.hpp>
#include <parx/core/call_context.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename Wrapper>
inline constexpr bool is_whole = std::derived_from<Wrapper, whole_wrapper>;

[[nodiscard]] inline bool is_file_name(const std::string& path) {
  return path.ends_with(".safetensors");
}

/// Collective. Says that the parameters of a wrapper's module have other values.
template <typename Module>
void note_loaded(Module& module) {
  module.for_each_parameter([](const std::string&, auto& each) {
    if constexpr (requires { each.note_change(); }) each.note_change();
  });
}

}  // namespace detail

/// Local. Adds this rank's part of the checkpoint part `name`: the model, or state that belongs to
/// its parameters, such as an optim::ema. Borrowed.
template <distributed Wrapper, typename State>
void add_part(Wrapper& wrapper, const std::string& name, State& state, checkpoint_parts& parts) {
  if constexpr (detail::is_whole<Wrapper>) parts.add(name, state);
  else parts.add_shard(name, sharded_over(wrapper), state);
}
/// Local; call it on every rank. The inverse of add_part, in any layout. Throws as load_state does
/// if the file does not fit.
template <distributed Wrapper, typename State>
void load_part(Wrapper& wrapper, const std::string& name, State& state,
               const saved_checkpoint& saved) {
  if constexpr (std::derived_from<Wrapper, pipelined_wrapper>) {
    detail::state_of_shard share(wrapper.module(), state);
    saved.load(name, share);
  } else {
    saved.load(name, state);
  }
}

/// Collective. Adds this rank's parts of the checkpoint parts "model" and "optimizer", and, if a
/// hook has state, "gradient_hook". Model and optimizer are borrowed.
template <distributed Wrapper, typename Optimizer>
void add_training_state(Wrapper& wrapper, Optimizer& optimizer, checkpoint_parts& parts,
                        call_site site = call_site::current()) {
  wrapper.before_save(site);
  add_part(wrapper, "model", wrapper.module(), parts);
  add_part(wrapper, "optimizer", optimizer, parts);
  if constexpr (detail::is_whole<Wrapper>) {
    const auto hook = std::make_shared<hook_state>(wrapper, site);
    hook->add_to(parts);
    parts.keep(hook);
  }
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
  load_part(wrapper, "optimizer", optimizer, saved);
  if constexpr (detail::is_whole<Wrapper>) load_hook_state(wrapper, saved);
}

/// Collective over the job. A name that ends in .safetensors: one file with the whole model, of
/// which each rank writes its bytes (of a ddp rank 0 writes all). Else a folder, in which each rank
/// writes its part, with a manifest that has checksums. Either appears complete or not at all, and
/// replaces an earlier one. Blocks until it is on the disk. If it fails on one rank (a full disk,
/// no permission), every rank throws errc::io, and what was there is unchanged.
template <distributed Wrapper>
void save(Wrapper& wrapper, const std::string& path, call_site site = call_site::current()) {
  with_call_context("save", site, [&] {
    wrapper.before_save(site);
    process_group& job = wrapper.job_group();
    if (!detail::is_file_name(path)) {
      checkpoint_parts parts;
      add_part(wrapper, "model", wrapper.module(), parts);
      return detail::save_folder(job, parts, path, 0, site);
    }
    if constexpr (detail::is_whole<Wrapper>) {
      detail::agree_on_rank0(&job, site, [&] {
        save_state(wrapper.module(), path, {{"format", "pt"}}, site);
      });
    } else if constexpr (std::derived_from<Wrapper, pipelined_wrapper>) {
      detail::save_file(job, path, sharded_over(wrapper), wrapper.module(), wrapper.whole_model(),
                        site);
    } else {
      detail::save_file(job, path, sharded_over(wrapper), wrapper.module(), wrapper.module(), site);
    }
  });
}
/// Collective over the job. Model, optimizer and a hook's state, as a folder: to go on later, in
/// any layout.
template <distributed Wrapper, typename Optimizer>
  requires requires(Optimizer& optimizer) { optimizer.targets(); }
void save(Wrapper& wrapper, Optimizer& optimizer, const std::string& folder,
          call_site site = call_site::current()) {
  with_call_context("save", site, [&] {
    checkpoint_parts parts;
    add_training_state(wrapper, optimizer, parts, site);
    detail::save_folder(wrapper.job_group(), parts, folder, 0, site);
  });
}
/// Collective. The same of a model that `how` describes as distributed over the ranks of `group`.
template <typename Source>
void save(process_group& group, const sharding& how, Source& model, const std::string& path,
          call_site site = call_site::current()) {
  if (detail::is_file_name(path)) return detail::save_file(group, path, how, model, model, site);
  checkpoint_parts parts;
  parts.add_shard("model", how, model);
  detail::save_folder(group, parts, path, 0, site);
}
/// Collective. Any parts, as a folder.
inline void save(process_group& group, const checkpoint_parts& parts, const std::string& folder,
                 std::uint64_t step = 0, call_site site = call_site::current()) {
  detail::save_folder(group, parts, folder, step, site);
}

/// Collective over the job. A folder in Hugging Face's layout: config.json, the texts in `files`
/// (those of a tokenizer), and model.safetensors, of which each rank writes its bytes; then the
/// files of an earlier sharded model are removed.
template <distributed Wrapper>
void save_pretrained(Wrapper& wrapper, const json::value& config,
                     const std::filesystem::path& folder, const text_files& files = {},
                     call_site site = call_site::current()) {
  process_group& job = wrapper.job_group();
  detail::agree_on_rank0(&job, site, [&] { save_pretrained_config(config, folder, files); });
  save(wrapper, (folder / detail::model_file_name).string(), site);
  detail::agree_on_rank0(&job, site, [&] { detail::remove_shards(folder); });
}

/// Collective over the job. Each rank reads its parts of the model from `path`: a folder of save()
/// or checkpoint_manager, a Hugging Face model folder, or a safetensors file, written in any
/// layout. If it fails on one rank, every rank throws, as load_state does.
template <distributed Wrapper>
state_report load(Wrapper& wrapper, const std::filesystem::path& path,
                  state_match match = state_match::strict, call_site site = call_site::current()) {
  return with_call_context("load", site, [&] {
    wrapper.before_write();
    state_report report = load(wrapper.job_group(), wrapper.module(), path, match, site);
    detail::note_loaded(wrapper.module());
    return report;
  });
}
/// Collective over the job. The inverse of save(wrapper, optimizer, folder), in any layout.
template <distributed Wrapper, typename Optimizer>
  requires requires(Optimizer& optimizer) { optimizer.targets(); }
void load(Wrapper& wrapper, Optimizer& optimizer, const std::filesystem::path& folder,
          call_site site = call_site::current()) {
  with_call_context("load", site, [&] {
    detail::agree(&wrapper.job_group(), site,
                  [&] { load_training_state(wrapper, optimizer, saved_checkpoint::open(folder)); });
    detail::note_loaded(wrapper.module());
  });
}

/// For a model without its wrapper: a compile-time error that says what to do.
template <typename Model>
  requires(!distributed<Model> && !std::convertible_to<Model&, const process_group&>)
void save(Model&, const std::string&, call_site = {}) {
  static_assert(std::is_void_v<Model>,
                "save takes a model in its wrapper: parx::ddp ddp{model, world}; parx::save(ddp, "
                "\"model.safetensors\"). A model on one rank: parx::save_state(model, path)");
}
template <typename Model>
  requires(!std::same_as<Model, checkpoint_parts>)
void save(process_group&, Model&, const std::string&, call_site = {}) {
  static_assert(std::is_void_v<Model>,
                "save takes a model in its wrapper, without the group: parx::save(ddp, "
                "\"model.safetensors\")");
}

}  // namespace parx
