// Definitions of record.hpp.
#pragma once

#include <charconv>
#include <cmath>
#include <limits>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/train/record.hpp>

namespace parx::inline PARX_ABI::train {

PARX_INLINE double rounded(double value, int digits) {
  if (!std::isfinite(value)) return value;
  // By its decimal digits: products with powers of ten have rounding errors of their own.
  const std::string text = formatted("{:.{}e}", value, digits - 1);
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

PARX_INLINE std::string with_commas(std::uint64_t number) {
  std::string digits = formatted("{}", number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

PARX_INLINE void record::set(std::string_view name, double value) {
  for (entry& each : entries_) {
    if (each.first == name) {
      each.second = value;
      return;
    }
  }
  entries_.emplace_back(name, value);
}

PARX_INLINE std::optional<double> record::find(std::string_view name) const {
  for (const entry& each : entries_) {
    if (each.first == name) return each.second;
  }
  return std::nullopt;
}

PARX_INLINE double record::at(std::string_view name) const {
  if (const auto value = find(name)) return *value;
  throw_usage("this line has no \"{}\"; it has {}", name, names());
}

PARX_INLINE std::string record::names() const {
  std::string all;
  for (const entry& each : entries_) all += (all.empty() ? "" : ", ") + each.first;
  return all.empty() ? "nothing" : all;
}

PARX_INLINE json::value json_number(double value) {
  constexpr double exact = 9007199254740992;  // 2^53
  if (value == std::floor(value) && std::abs(value) < exact)
    return static_cast<std::int64_t>(value);
  return value;
}

PARX_INLINE std::string dict_text(const record& line) {
  std::string text = "{";
  for (const auto& [name, value] : line.entries()) {
    text += formatted("{}'{}': {}", text.size() > 1 ? ", " : "", name,
                      formatted("{}", rounded(value, 5)));
  }
  return text + "}";
}

PARX_INLINE json::value to_json(const record& line) {
  json::object members;
  for (const auto& [name, value] : line.entries()) members[name] = json_number(value);
  return members;
}

PARX_INLINE record record_from(const json::value& object) {
  record line;
  for (const auto& [name, value] : object.members()) {
    line.set(name, value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.as<double>());
  }
  return line;
}

}  // namespace parx::train
