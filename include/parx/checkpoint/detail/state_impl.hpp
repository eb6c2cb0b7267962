// Definitions of state.hpp.
#pragma once

#include <cstring>

#include <parx/checkpoint/state.hpp>

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
