// A model whose parameters are distributed over ranks, in a folder that all ranks write: what save
// and load (save.hpp) do for the name of a folder, and the manager for checkpoints.
//
// Every rank writes one safetensors file with its parts; nothing is gathered. A model is anything
// that save_state takes: a class with for_each_parameter(visitor(path, parameter)) and, if it has
// buffers, for_each_buffer, or a std::vector<parameter<T>>. parameter.spec() is this rank's part.
// The state of an optimizer or ema has the same parts.
//
// Loading works by overlap of intervals: each rank reads only the bytes of its own parts, at any
// number of ranks and any cut, from a sharded folder, a checkpoint of one file, a Hugging Face
// model folder or one safetensors file. So a model trained with ddp can continue with fsdp, and
// back.
//
// Parts that several ranks hold are written once, by all of these ranks together:
//
//   sharded_over(world)              each element of a parameter is on one rank (fsdp; moments)
//   sharded_over(world, replicas)    the ranks of `replicas` have the same parts (hybrid)
//   replicated_over(world)           every rank has all elements (the values of ZeRO-1 and 2)
//
// Buffers are on all ranks. For other layouts (with tensor parallelism inside, or some parameters
// that are not cut) fill in sharding::copies yourself. If it is wrong, saving throws and names the
// elements that no rank, or more than one, has written.
//
// To merge a folder into one file: parx_checkpoint merge out/model model.safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <system_error>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/checkpoint/write_together.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Collective. Writes `parts` as the folder `folder`: see save() in save.hpp.
void save_folder(process_group& group, const checkpoint_parts& parts, const std::string& folder,
                 std::uint64_t step, call_site site);

}  // namespace detail

/// Local. Fills `model`, which no wrapper has, from `path`: a folder of save() or
/// checkpoint_manager, a Hugging Face model folder, or a safetensors file. Reads only this rank's
/// parts; throws as load_state does.
template <typename Target>
requires(!distributed<Target>)
state_report load(Target& model, const std::filesystem::path& path,
                  state_match match = state_match::strict, call_site = call_site::current()) {
  std::error_code failure;
  if (!std::filesystem::is_directory(path, failure)) return load_state(model, path.string(), match);
  if (!std::filesystem::exists(path / detail::manifest_name, failure))
    return load_state(model, safetensors_shards(path), match);
  return saved_checkpoint::open(path, checkpoint_check::sizes).load("model", model, match);
}
/// Collective. The same on all ranks; if it fails on one rank, every rank throws.
template <typename Target>
state_report load(process_group& group, Target& model, const std::filesystem::path& path,
                  state_match match = state_match::strict, call_site site = call_site::current()) {
  state_report report;
  detail::agree(&group, site, [&] { report = load(model, path, match); });
  return report;
}

}  // namespace parx

namespace parx::inline PARX_ABI::detail {

/// Throws errc::io if `target` is a file, or a folder that contains anything but a checkpoint:
/// replacing it would lose that.
inline void require_replaceable(const std::filesystem::path& target) {
  std::error_code failure;
  if (!std::filesystem::exists(target, failure)) return;
  const bool is_folder = std::filesystem::is_directory(target, failure);
  if (is_folder && std::filesystem::is_empty(target, failure)) return;
  const auto is_ours = [&] {
    if (!is_folder || !std::filesystem::exists(target / manifest_name, failure)) return false;
    const input_file manifest((target / manifest_name).string());
    std::set<std::string, std::less<>> known{std::string(manifest_name)};
    for (const auto& file : parse_manifest(manifest.whole_text()).files) known.insert(file.name);
    for (const auto& entry : std::filesystem::directory_iterator(target))
      if (!known.contains(entry.path().filename().string())) return false;
    return true;
  };
  if (is_ours()) return;
  throw_error(errc::io,
              "\"{}\" is {} that parx::save did not write, and will not be replaced. Give the "
              "name of a new folder.",
              target.string(), is_folder ? "a folder with files" : "a file");
}

inline void save_folder(process_group& group, const checkpoint_parts& parts,
                        const std::string& folder, std::uint64_t step, call_site site) {
  require(!folder.empty(), "save at {}: the path is empty", site);
  const auto target = std::filesystem::absolute(folder).lexically_normal();
  const auto named = target.has_filename() ? target : target.parent_path();  // "out/model/"
  agree_on_rank0(&group, site, [&] {
    make_folders(named.parent_path().string());
    require_replaceable(named);
  });
  write_together(group, {.target = named, .step = step, .site = site},
                 parts.written_by(group.rank()));
}

}  // namespace parx::detail
