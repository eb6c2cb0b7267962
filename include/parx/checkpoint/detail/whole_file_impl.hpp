// Definitions of whole_file.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/detail/output_file.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/checkpoint/whole_file.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE safetensors_header whole_header(const std::vector<state_entry>& entries) {
  std::vector<stored_tensor> tensors;
  for (const state_entry& entry : entries) {
    tensors.push_back(described(entry.name, entry.type, entry.shape(),
                                byte_count(entry.part.global_shape(), size_of(entry.type))));
  }
  return lay_out(std::move(tensors), {{"format", "pt"}});
}

/// Collective. Throws errc::mismatch on every rank unless `text` is the same on all.
PARX_INLINE void require_same_header(process_group& group, const std::string& text,
                                     call_site site) {
  const std::uint64_t hash = fnv1a(text);
  std::array<std::uint64_t, 2> highest{hash, ~hash};
  all_reduce(group, highest, {.op = reduce_op::max}, site);
  if (highest[0] == ~highest[1]) return;
  throw_error(errc::mismatch,
              "save at {}: the ranks have other names, types or shapes of tensors. Save what they "
              "have as a folder, and merge that: parx_checkpoint merge.",
              site);
}

PARX_INLINE void save_entries(process_group& group, const std::string& path, const sharding& how,
                              const std::vector<state_entry>& entries,
                              const safetensors_header& header, call_site site) {
  const std::string head = head_of(header);
  require_same_header(group, head, site);
  const std::uint64_t bytes = header.tensors.empty() ? 0 : header.tensors.back().end;

  std::optional<atomic_file> made;    // rank 0's
  std::optional<output_file> joined;  // of the others
  std::string temporary;
  agree_on_rank0(&group, site, [&] {
    made.emplace(path);
    made->write(std::as_bytes(std::span(head)));
    temporary = made->file().path();
  });
  broadcast_object(group, temporary, {.root = 0}, site);
  std::array<std::uint64_t, 1> written{0};
  agree(&group, site, [&] {
    const std::string consequence = formatted("Nothing was changed under \"{}\".", path);
    if (!made) joined.emplace(temporary, consequence, output_file::made_by::another);
    output_file& file = made ? made->file() : *joined;
    for (const auto& entry : entries) {
      const auto piece = piece_of(entry, how);
      if (!piece) continue;
      const auto stored = std::find_if(header.tensors.begin(), header.tensors.end(),
                                       [&](const auto& each) { return each.name == entry.name; });
      const std::size_t size = size_of(entry.type);
      const std::span<const std::byte> memory = entry.memory();
      piece->spec.for_each_run([&](const shard_run& run) {
        file.write_at(head.size() + stored->begin + run.global * size,
                      memory.subspan((piece->first + run.local) * size, run.length * size));
        written[0] += run.length * size;
      });
    }
    if (joined) joined->finish();
  });
  all_reduce(group, written, {}, site);
  if (written[0] != bytes) {
    throw_error(
        errc::mismatch,
        "save at {}: the ranks have {} bytes to write of {}, so some elements are on none of "
        "them, or on more than sharding::copies says. Nothing was changed under \"{}\".",
        site, written[0], bytes, path);
  }
  agree_on_rank0(&group, site, [&] { made->commit(); });
}

}  // namespace parx::detail
