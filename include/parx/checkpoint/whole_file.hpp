// A model that is distributed over ranks, or over files, as one safetensors file that any program
// can read: what save (save.hpp) does for the name of a file, and merge_shards.
//
// The header is a function of names, types and global shapes, so every rank knows the offsets of
// its parts and writes them there. Nothing is gathered. The file system must support writes of
// several hosts to one file that are not aligned to pages: Lustre, GPFS and a local disk do, NFS
// may not. On NFS save a folder, which has one file per rank, and use merge_shards or
// `parx_checkpoint merge`.
#pragma once

#include <string>
#include <vector>

#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_layout.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// The header of a file with the whole tensors of `entries`.
[[nodiscard]] safetensors_header whole_header(const std::vector<state_entry>& entries);

/// Collective. Writes `entries`, this rank's parts, which `how` describes as distributed over the
/// ranks of `group`, to `path`, atomically. `header` is that of the file, the same on all ranks. If
/// it fails on one rank, every rank throws errc::io and an existing file is unchanged.
void save_entries(process_group& group, const std::string& path, const sharding& how,
                  const std::vector<state_entry>& entries, const safetensors_header& header,
                  call_site site);

/// Collective. The same of the parameters of `source`; `all` has the names and shapes of all.
template <typename Source, typename All>
void save_file(process_group& group, const std::string& path, const sharding& how, Source& source,
               All& all, call_site site) {
  const auto entries = state_entries<state_access::read>(source);
  const safetensors_header header = whole_header(state_entries<state_access::overwrite>(all));
  save_entries(group, path, how, entries, header, site);
}

}  // namespace detail

/// Local. Writes all tensors of `from` as one safetensors file to `path`, atomically. Needs 16 MiB
/// of memory. Throws errc::io, errc::bad_data; an existing file is unchanged then.
void merge_shards(const safetensors_shards& from, const std::string& path);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/whole_file_impl.hpp>
#endif
