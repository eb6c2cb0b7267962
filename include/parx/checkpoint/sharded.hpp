// save_sharded and load_sharded: a model whose parameters lie on several ranks in parts, in a
// folder that all of them write.
//
//   save_sharded(world, "out/model", sharded_over(world), model);      // all ranks
//   load_sharded(world, "out/model", model);
//
// and as a part of the checkpoints of a run:
//
//   parts.add_shard("model", sharded_over(world), model);
//   parts.add_shard("optimizer", sharded_over(world), optimizer);      // ... .save(step, parts)
//   saved.load("model", model);  saved.load("optimizer", optimizer);
//
// `model` is what save_state takes: for_each_parameter(visitor(path, parameter)) and where it has
// buffers for_each_buffer, or a std::vector<parameter<T>>. parameter.spec() says what lies here,
// whoever has cut it: every rank writes one safetensors file with its parts, nothing is gathered,
// and no rank asks another one what it has. An optimizer's or ema's state lies in the same parts.
//
// Loading is by overlap of intervals: each rank reads the bytes of its own parts, at any number of
// ranks and any cut, from a sharded folder, a checkpoint of one file, a Hugging Face model folder
// or one safetensors file. So what was trained with ddp goes on sharded, and the other way round.
//
// Copies. What several ranks hold alike is written once, by all of them together:
//
//   sharded_over(world)              each element of a parameter is on one rank (fsdp; moments)
//   sharded_over(world, replicas)    the ranks of `replicas` have the same parts (hybrid)
//   replicated_over(world)           every rank has all (the values of ZeRO-1 and 2)
//
// Buffers are on all ranks. For other layouts (tensor parallel inside of it, a few parameters that
// are not cut) fill sharding::copies by hand. A wrong answer is an error when it is saved: it names
// the elements that nobody, or more than one rank, has written.
//
//   merge: parx_checkpoint merge out/model model.safetensors, or save_whole() (whole_file.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/shard_layout.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/checkpoint/write_together.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

/// Parameters are cut over the ranks of `group`, each element is on one of them.
[[nodiscard]] inline sharding sharded_over(const process_group& group) {
  const shard_place place = detail::place_in(group);
  return {.file = place, .copies = {}, .others = place};
}
/// The same where the ranks of `replicas`, a part of `group`, hold the same parts.
[[nodiscard]] sharding sharded_over(const process_group& group,
                                           const process_group& replicas);
/// Every rank of `group` has all of every parameter.
[[nodiscard]] inline sharding replicated_over(const process_group& group) {
  return sharded_over(group, group);
}

/// Collective. Writes what checkpoint_parts::add and add_shard have collected as the folder
/// `folder`, in which there is a manifest.json with checksums. It appears whole or not at all; one
/// that save_sharded wrote earlier is replaced. Blocks until it is on the disk. Throws errc::io on
/// every rank where it fails on one (a full disk); what was there is then as it was.
void save_sharded(process_group& group, const std::string& folder,
                         const checkpoint_parts& parts, std::uint64_t step = 0,
                         call_site site = call_site::current());
/// The same for a model alone.
template <typename Source>
void save_sharded(process_group& group, const std::string& folder, const sharding& how,
                  Source& model, call_site site = call_site::current()) {
  checkpoint_parts parts;
  parts.add_shard("model", how, model);
  save_sharded(group, folder, parts, 0, site);
}

/// Local. Fills `model` from `path`: a folder of save_sharded or checkpoint_manager, a Hugging Face
/// model folder, or a safetensors file. Reads what lies here and no other bytes; throws as
/// load_state does.
template <typename Target>
state_report load_sharded(const std::filesystem::path& path, Target& model,
                          state_match match = state_match::strict) {
  std::error_code failure;
  if (!std::filesystem::is_directory(path, failure)) return load_state(model, path.string(), match);
  if (!std::filesystem::exists(path / detail::manifest_name, failure))
    return load_state(model, safetensors_shards(path), match);
  return saved_checkpoint::open(path, checkpoint_check::sizes).load("model", model, match);
}
/// Collective. The same on all ranks; what fails on one is an error on every rank.
template <typename Target>
state_report load_sharded(process_group& group, const std::filesystem::path& path, Target& model,
                          state_match match = state_match::strict,
                          call_site site = call_site::current()) {
  state_report report;
  detail::agree(&group, site, [&] { report = load_sharded(path, model, match); });
  return report;
}

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/sharded_impl.hpp>
#endif
