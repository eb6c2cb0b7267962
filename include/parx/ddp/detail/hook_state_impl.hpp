// Definitions of hook_state.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include <parx/ddp/hook_state.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE bool fits(const stored_tensor* stored, const hook_memory& wanted) {
  if (stored == nullptr || stored->type != wanted.values.type) return false;
  const std::vector<std::uint64_t>& shape = stored->shape;
  const bool by_rank = wanted.share == hook_share::addend;
  if (shape.size() != (by_rank ? 2 : 1) || shape.back() != wanted.values.count) return false;
  return !by_rank || shape.front() > 0;
}

/// Reads this rank's row, or its part of the sum if another number of ranks saved.
PARX_INLINE void read_addend(const safetensors_file& file, const stored_tensor& stored,
                             const buffer_view& values, const process_group& group) {
  const auto target = std::span(static_cast<std::byte*>(values.data), values.bytes());
  const std::uint64_t writers = stored.shape.front();
  if (writers == static_cast<std::uint64_t>(group.size())) {
    file.read(stored, target, static_cast<std::uint64_t>(group.rank()) * target.size());
    return;
  }
  visit_dtype(values.type, [&]<typename T>(std::type_identity<T>) {
    if constexpr (is_floating(dtype_of<T>)) {
      std::vector<double> sum(values.count);
      std::vector<T> part(values.count);
      for (std::uint64_t writer = 0; writer < writers; ++writer) {
        file.read(stored, std::as_writable_bytes(std::span(part)), writer * target.size());
        for (std::size_t i = 0; i < part.size(); ++i) sum[i] += static_cast<double>(part[i]);
      }
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = static_cast<T>(sum[i] / group.size());
      std::memcpy(values.data, part.data(), target.size());
    }
  });
}

PARX_INLINE bool load_hook_memory(const safetensors_file& file,
                                  const std::vector<hook_memory>& memory,
                                  const process_group& group) {
  if (file.tensors().size() != memory.size()) return false;
  for (const hook_memory& each : memory) {
    if (!fits(file.find(each.name), each)) return false;
  }
  for (const hook_memory& each : memory) {
    const stored_tensor& stored = *file.find(each.name);
    if (each.share == hook_share::addend) {
      read_addend(file, stored, each.values, group);
    } else {
      file.read(stored, std::span(static_cast<std::byte*>(each.values.data), each.values.bytes()));
    }
  }
  return true;
}

}  // namespace parx::detail

namespace parx::inline PARX_ABI {

PARX_INLINE void hook_state::keep(const hook_memory& each, std::size_t ranks,
                                  std::vector<std::byte> held) {
  std::vector<std::uint64_t> shape{each.values.count};
  if (each.share == hook_share::addend) shape.insert(shape.begin(), ranks);
  memory_.push_back(std::move(held));
  tensors_.push_back({each.name, each.values.type, std::move(shape), memory_.back()});
}

}  // namespace parx
