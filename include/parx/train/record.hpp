// record: one line of the log: names and values in the order in which they were added.
//
//   {'loss': 1.2164, 'grad_norm': 2.4071, 'learning_rate': 4.5e-05, 'epoch': 0.21}
//
// The same record goes to the console in that form, to files as JSON and CSV, to event files as
// scalars. Names are those of Hugging Face's Trainer. A value.
#pragma once

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

#include <fmt/format.h>

#include <parx/core/check.hpp>
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI::train {

/// `value` to so many significant digits; what is not finite stays as it is.
[[nodiscard]] inline double rounded(double value, int digits) {
  if (!std::isfinite(value)) return value;
  // By its decimal digits: products with powers of ten have rounding errors of their own.
  const std::string text = fmt::format("{:.{}e}", value, digits - 1);
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// 1234567 as "1,234,567", whatever the locale.
[[nodiscard]] inline std::string with_commas(std::uint64_t number) {
  std::string digits = fmt::format("{}", number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

/// A data_wait_percent above it is told, in the console's lines and by the report.
inline constexpr double late_loader_percent = 10;

class record {
 public:
  using entry = std::pair<std::string, double>;

  record() = default;
  record(std::initializer_list<entry> entries) : entries_(entries) {}

  /// Replaces the value of a name that is there.
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
  /// Throws usage_error, with the names that there are, for another.
  [[nodiscard]] double at(std::string_view name) const {
    if (const auto value = find(name)) return *value;
    throw_usage("this line has no \"{}\"; it has {}", name, names());
  }
  /// "eval_loss, eval_accuracy, epoch"; "nothing" where it is empty.
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

/// A number for JSON, whole where it is: "step": 10, not 10.0.
[[nodiscard]] inline json::value json_number(double value) {
  constexpr double exact = 9007199254740992;  // 2^53
  if (value == std::floor(value) && std::abs(value) < exact)
    return static_cast<std::int64_t>(value);
  return value;
}

/// Python's way, which the labs' users know; figures to five significant digits.
[[nodiscard]] inline std::string dict_text(const record& line) {
  std::string text = "{";
  for (const auto& [name, value] : line.entries()) {
    text += fmt::format("{}'{}': {}", text.size() > 1 ? ", " : "", name,
                        fmt::format("{}", rounded(value, 5)));
  }
  return text + "}";
}

/// A JSON object in one line; what is not a finite number becomes null.
[[nodiscard]] inline json::value to_json(const record& line) {
  json::object members;
  for (const auto& [name, value] : line.entries()) members[name] = json_number(value);
  return members;
}

/// The inverse. Throws json::error for anything but an object of numbers; null is not a number.
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
