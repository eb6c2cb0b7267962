// Definitions of sharded.hpp.
#pragma once

#include <functional>
#include <set>
#include <system_error>

#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/sharded.hpp>
#include <parx/checkpoint/write_together.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

/// Throws errc::io if `target` is a file, or a folder that contains anything but a checkpoint:
/// replacing it would lose that.
PARX_INLINE void require_replaceable(const std::filesystem::path& target) {
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

PARX_INLINE void save_folder(process_group& group, const checkpoint_parts& parts,
                             const std::string& folder, std::uint64_t step, call_site site) {
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
