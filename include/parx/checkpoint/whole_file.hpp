// A model that is distributed over ranks, or over files, as one safetensors file that any program
// can read: what save (save.hpp) does for the name of a file, and merge_shards.
//
// The header is a function of names, types and global shapes, so every rank knows the offsets of
// its parts and writes them there. Nothing is gathered. The file system must support writes of
// several hosts to one file that are not aligned to pages: Lustre, GPFS and a local disk do, NFS
// may not. On NFS save a folder, which has one file per rank, and use merge_shards or
// `parx_checkpoint merge`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
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
inline void merge_shards(const safetensors_shards& from, const std::string& path) {
  std::vector<stored_tensor> tensors = from.tensors();
  for (stored_tensor& each : tensors) each.end = each.end - std::exchange(each.begin, 0);
  const detail::safetensors_header header = detail::lay_out(std::move(tensors), {{"format", "pt"}});
  detail::atomic_file file(path);
  const std::string head = detail::head_of(header);
  file.write(std::as_bytes(std::span(head)));
  std::vector<std::byte> memory(std::size_t{16} << 20U);
  for (const stored_tensor& each : header.tensors) {
    if (!each.type) {
      throw_error(errc::bad_data, "\"{}\": \"{}\" is of type {}, which parx does not know.",
                  from.path(), each.name, each.dtype_name);
    }
    const std::size_t size = size_of(*each.type), step = memory.size() / size;
    const stored_tensor& stored = *from.find(each.name);
    const shard_spec whole = detail::whole_spec(stored);
    for (std::size_t at = 0; at < whole.size(); at += step) {
      const std::size_t count = std::min(step, whole.size() - at);
      const auto part = std::span(memory).first(count * size);
      detail::read_part(from, stored, whole.flat(at, at + count), *each.type, part);
      file.write(part);
    }
  }
  file.commit();
}

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/whole_file_impl.hpp>
#endif
