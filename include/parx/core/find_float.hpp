// find_float: a finite number of a text file.
#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>

#include <parx/core/abi.hpp>
#include <parx/core/without_blanks.hpp>

namespace parx::inline PARX_ABI::detail {

/// The float nearest to a number in decimal, perhaps between blanks; nullopt for anything else, and
/// for what is too great for a float.
[[nodiscard]] inline std::optional<float> find_float(std::string_view text) noexcept {
  text = without_blanks(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  float value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (stop != end || text.empty()) return std::nullopt;
  if (code == std::errc::result_out_of_range) {
    // A number that is too small for a float is 0, as strtof says.
    const bool is_small = text.find("e-") != text.npos || text.find("E-") != text.npos;
    if (!is_small) return std::nullopt;
    return text.front() == '-' ? -0.0F : 0.0F;
  }
  if (code != std::errc{} || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace parx::detail
