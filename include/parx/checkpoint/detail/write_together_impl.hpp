// Definitions of write_together.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/checkpoint/write_together.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE void commit(const save_plan& plan, unfinished_checkpoint& made,
                   std::vector<checkpoint_manifest::file> files) {
  add_indexes(made.path(), files);
  made.commit({.step = plan.step, .metric = plan.metric, .files = std::move(files)});
  rotate(plan.target.parent_path().string(), plan.step, plan.limit, plan.goal, plan.best_step);
}

PARX_INLINE void write_alone(const save_plan& plan, const checkpoint_parts& parts) {
  unfinished_checkpoint made(plan.target, plan.claim);
  commit(plan, made, write_parts(made.path(), plan.step, parts));
}

/// Throws usage_error if two ranks have a file of the same name; `parts` is by rank.
PARX_INLINE void require_distinct(const std::vector<checkpoint_manifest>& parts) {
  std::vector<std::pair<std::string, std::size_t>> seen;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    for (const auto& file : parts[rank].files) seen.emplace_back(file.name, rank);
  }
  std::sort(seen.begin(), seen.end());
  for (std::size_t i = 1; i < seen.size(); ++i) {
    require(seen[i - 1].first != seen[i].first,
            "ranks {} and {} would both write {}. A shard is added by one rank, each under a place "
            "of its own.",
            seen[i - 1].second, seen[i].second, seen[i].first);
  }
}

/// The files of all ranks, on rank 0.
PARX_INLINE std::vector<checkpoint_manifest> gather_files(process_group& group,
                                                          const checkpoint_manifest& mine,
                                                          call_site site) {
  std::vector<checkpoint_manifest> all;
  for (const std::string& text : gather_object(group, encode_manifest(mine), {.root = 0}, site))
    all.push_back(parse_manifest(text));
  return all;
}

PARX_INLINE void write_together(process_group& group, const save_plan& plan,
                           const checkpoint_parts& mine) {
  const call_site site = plan.site;
  checkpoint_manifest files;
  for (const auto& file : mine.tensor_files()) files.files.push_back({.name = file.name});
  for (const auto& file : mine.text_files()) files.files.push_back({.name = file.name});
  const auto names = gather_files(group, files, site);

  std::optional<unfinished_checkpoint> made;
  std::string hidden;
  agree_on_rank0(&group, site, [&] {
    require_distinct(names);
    made.emplace(plan.target, plan.claim);
    hidden = made->path().string();
  });
  broadcast_object(group, hidden, {.root = 0}, site);
  agree(&group, site, [&] { files.files = write_parts(hidden, plan.step, mine); });

  const auto written = gather_files(group, files, site);
  agree_on_rank0(&group, site, [&] {
    std::vector<checkpoint_manifest::file> all;
    for (std::size_t rank = 0; rank < written.size(); ++rank) {
      for (const auto& file : written[rank].files) {
        const std::filesystem::path path = std::filesystem::path(hidden) / file.name;
        std::error_code failure;
        const std::uint64_t here = std::filesystem::file_size(path, failure);
        if (failure || here != file.bytes) {
          throw_error(errc::io,
                      "rank {} has written {} with {} bytes, but rank 0 does not find them in "
                      "\"{}\". All ranks save into one folder, which all of them see. {}",
                      rank, file.name, file.bytes, hidden, earlier_ones_untouched);
        }
        all.push_back(file);
      }
    }
    commit(plan, *made, std::move(all));
    made.reset();
  });
}

}  // namespace parx::detail
