// Definitions of state_dict.hpp.
#pragma once

#include <utility>

#include <parx/checkpoint/state_dict.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE bool state_dict::erase(std::string_view name) {
  const std::size_t at = place_of(name);
  if (at == names_.size()) return false;
  names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(at));
  values_.erase(values_.begin() + static_cast<std::ptrdiff_t>(at));
  return true;
}

PARX_INLINE std::size_t state_dict::place_of(std::string_view name) const {
  const auto found = std::find_if(names_.begin(), names_.end(),
                                  [&](const stored_tensor& each) { return each.name == name; });
  return static_cast<std::size_t>(found - names_.begin());
}

PARX_INLINE void state_dict::put(const std::string& name, dtype type,
                                 std::vector<std::uint64_t> extents,
                                 std::span<const std::byte> memory) {
  stored_tensor stored = detail::described(name, type, std::move(extents), memory.size());
  const std::size_t at = place_of(name);
  if (at == names_.size()) {
    names_.push_back(std::move(stored));
    values_.emplace_back(memory.begin(), memory.end());
  } else {
    names_[at] = std::move(stored);
    values_[at].assign(memory.begin(), memory.end());
  }
}

}  // namespace parx
