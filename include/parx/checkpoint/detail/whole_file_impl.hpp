// Definitions of whole_file.hpp.
#pragma once

#include <utility>

#include <parx/checkpoint/whole_file.hpp>
#include <parx/core/hash.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE safetensors_header whole_header(const std::vector<state_entry>& entries) {
  std::vector<stored_tensor> tensors;
  for (const state_entry& entry : entries) {
    tensors.push_back(described(entry.name, entry.type, entry.shape(),
                                byte_count(entry.part.global_shape(), size_of(entry.type))));
  }
  return lay_out(std::move(tensors), {{"format", "pt"}});
}

PARX_INLINE void require_same_header(process_group& group, const std::string& text,
                                     call_site site) {
  const std::uint64_t hash = fnv1a(text);
  std::array<std::uint64_t, 2> highest{hash, ~hash};
  all_reduce(group, highest, {.op = reduce_op::max}, site);
  if (highest[0] == ~highest[1]) return;
  throw_error(errc::mismatch,
              "save_whole at {}: the ranks have other names, types or shapes of tensors. Save what "
              "they have with save_sharded, and merge that.",
              site);
}

}  // namespace parx::detail

namespace parx::inline PARX_ABI {

PARX_INLINE void merge_shards(const safetensors_shards& from, const std::string& path) {
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
