// parse_number: std::from_chars for a text that is one number and nothing else.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// The number in decimal; nullopt where `text` is anything else or does not fit into T. No spaces,
/// no plus sign.
template <typename T>
[[nodiscard]] std::optional<T> parse_number(std::string_view text) noexcept {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc{} || stop != end) return std::nullopt;
  return value;
}

}  // namespace parx::detail
