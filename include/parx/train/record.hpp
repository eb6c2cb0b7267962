// record: one line of the log: names and values, in the order in which they were added.
//
//   {'loss': 1.2164, 'grad_norm': 2.4071, 'learning_rate': 4.5e-05, 'epoch': 0.21}
//
// The console shows it in that form; files hold it as JSON and CSV, event files as scalars. Names
// are those of Hugging Face's Trainer. A value type.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI::train {

/// `value` rounded to so many significant digits; Inf and NaN are returned unchanged.
[[nodiscard]] inline double rounded(double value, int digits) {
  if (!std::isfinite(value)) return value;
  // By its decimal digits: products with powers of ten have rounding errors of their own.
  const std::string text = formatted("{:.{}e}", value, digits - 1);
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// 1234567 as "1,234,567", in every locale.
[[nodiscard]] inline std::string with_commas(std::uint64_t number) {
  std::string digits = formatted("{}", number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

/// Above this, data_wait_percent is shown on the console and mentioned in the report.
inline constexpr double late_loader_percent = 10;

class record {
 public:
  using entry = std::pair<std::string, double>;

  record() = default;
  record(std::initializer_list<entry> entries) : entries_(entries) {}

  /// Adds a value, or replaces the one of this name.
  void set(std::string_view name, double value) {
    for (entry& each : entries_) {
      if (each.first == name) {
        each.second = value;
        return;
      }
    }
    entries_.emplace_back(name, value);
  }
  [[nodiscard]] std::optional<double> find(std::string_view name) const {
    for (const entry& each : entries_) {
      if (each.first == name) return each.second;
    }
    return std::nullopt;
  }
  /// Throws usage_error, listing the names, if there is none of this name.
  [[nodiscard]] double at(std::string_view name) const {
    if (const auto value = find(name)) return *value;
    throw_usage("this line has no \"{}\"; it has {}", name, names());
  }
  /// "eval_loss, eval_accuracy, epoch"; "nothing" if empty.
  [[nodiscard]] std::string names() const {
    std::string all;
    for (const entry& each : entries_) all += (all.empty() ? "" : ", ") + each.first;
    return all.empty() ? "nothing" : all;
  }
  [[nodiscard]] const std::vector<entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  friend bool operator==(const record&, const record&) = default;

 private:
  std::vector<entry> entries_;
};

/// A number for JSON, without a fraction if it is whole: "step": 10, not 10.0.
[[nodiscard]] inline json::value json_number(double value) {
  constexpr double exact = 9007199254740992;  // 2^53
  if (value == std::floor(value) && std::abs(value) < exact)
    return static_cast<std::int64_t>(value);
  return value;
}

/// As Python prints a dict; values to five significant digits.
[[nodiscard]] inline std::string dict_text(const record& line) {
  std::string text = "{";
  for (const auto& [name, value] : line.entries()) {
    text += formatted("{}'{}': {}", text.size() > 1 ? ", " : "", name,
                      formatted("{}", rounded(value, 5)));
  }
  return text + "}";
}

/// A JSON object; Inf and NaN become null.
[[nodiscard]] inline json::value to_json(const record& line) {
  json::object members;
  for (const auto& [name, value] : line.entries()) members[name] = json_number(value);
  return members;
}

/// The inverse; null becomes NaN. Throws json::error for anything but an object of numbers.
[[nodiscard]] inline record record_from(const json::value& object) {
  record line;
  for (const auto& [name, value] : object.members()) {
    line.set(name, value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.as<double>());
  }
  return line;
}

}  // namespace parx::train

template <>
struct fmt::formatter<parx::train::record> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(const parx::train::record& line, Context& context) const {
    return fmt::formatter<std::string_view>::format(parx::train::dict_text(line), context);
  }
};
