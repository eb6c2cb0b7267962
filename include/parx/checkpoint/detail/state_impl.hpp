// Definitions of state.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include <parx/checkpoint/state.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE std::string state_report::text() const {
  std::string result;
  if (!missing.empty())
    result += formatted("\n  missing from the {}: {}", source, first_of(missing, 10, ", "));
  if (!unexpected.empty())
    result += formatted("\n  unknown to the model: {}", first_of(unexpected, 10, ", "));
  if (!mismatched.empty())
    result += formatted("\n  different: {}", first_of(mismatched, 4, "\n  different: "));
  return result;
}

PARX_INLINE std::string state_report::first_of(const std::vector<std::string>& all,
                                               std::size_t most, const char* between) {
  const std::size_t shown = std::min(all.size(), most);
  std::string text = joined_text(std::span(all).first(shown), between);
  if (shown < all.size()) text += formatted(", and {} more", all.size() - shown);
  return text;
}

}  // namespace parx

namespace parx::inline PARX_ABI::detail {

PARX_INLINE shard_spec part_in_common(const shard_spec& part, const shape& other) {
  const shape& own = part.global_shape();
  const std::size_t rows = std::min(own[0], other[0]);
  const std::size_t end = own[0] == 0 ? 0 : rows * (own.size() / own[0]);
  std::size_t count = 0;
  part.for_each_run([&](const shard_run& run) {
    if (run.global < end) count += std::min(run.length, end - run.global);
  });
  std::vector<axis_interval> cuts;
  bool are_rows_cut = false;
  for (axis_interval each : part.cuts()) {
    if (each.axis == 0) {
      are_rows_cut = true;
      each.end = std::min(each.end, rows);
      if (each.begin >= each.end) continue;
    }
    cuts.push_back(each);
  }
  if (!are_rows_cut) cuts.insert(cuts.begin(), {0, 0, rows});
  const std::size_t first = part.is_flat() ? part.flat_begin() : 0;
  if (count == 0) return shard_spec::whole(other).flat(0, 0);
  const shard_spec common = shard_spec::of_cuts(other, cuts);
  return part.is_flat() ? common.flat(first, first + count) : common;
}

PARX_INLINE void broadcast_entries(process_group& group, const std::vector<state_entry>& entries,
                                   int root, call_site site) {
  std::vector<std::uint8_t> made;  // by the root
  for (const state_entry& entry : entries)
    made.push_back(!entry.lazy || entry.lazy->is_made ? 1 : 0);
  broadcast(group, made, {.root = root}, site);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (made[i] != 0) broadcast(group, entries[i].memory(), {.root = root}, site);
    else entries[i].lazy->drop();
  }
}

PARX_INLINE void save_entries(const std::vector<state_entry>& entries, const std::string& path,
                              const checkpoint_metadata& metadata, call_site site) {
  std::vector<tensor_to_store> tensors;
  for (const state_entry& entry : entries) {
    try {
      tensors.push_back({entry.name, entry.type, entry.shape(), entry.memory()});
    } catch (const usage_error& absent) {  // no values here, as those of other stages
      throw_usage("at {}: {}. {}", site, absent.what(), advice_for_parts);
    }
  }
  write_safetensors(path, tensors, metadata);
}

PARX_INLINE void widen(dtype type, const std::byte* from, std::span<double> to) {
  visit_dtype(type, [&]<typename T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));
      to[i] = static_cast<double>(value);
    }
  });
}

PARX_INLINE void narrow(dtype type, std::span<const double> from, std::byte* to) {
  visit_dtype(type, [&]<typename T>(std::type_identity<T>) {
    if constexpr (is_floating(dtype_of<T>)) {
      for (std::size_t i = 0; i < from.size(); ++i) {
        const T value = static_cast<T>(from[i]);
        std::memcpy(to + i * sizeof(T), &value, sizeof(T));
      }
    }
  });
}

}  // namespace parx::detail
