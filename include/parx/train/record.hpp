// record: one line of the log: names and values, in the order in which they were added.
//
//   {'loss': 1.2164, 'grad_norm': 2.4071, 'learning_rate': 4.5e-05, 'epoch': 0.21}
//
// The console shows it in that form; files hold it as JSON and CSV, event files as scalars. Names
// are those of Hugging Face's Trainer. A value type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI::train {

/// `value` rounded to so many significant digits; Inf and NaN are returned unchanged.
[[nodiscard]] double rounded(double value, int digits);

/// 1234567 as "1,234,567", in every locale.
[[nodiscard]] std::string with_commas(std::uint64_t number);

/// Above this, data_wait_percent is shown on the console and mentioned in the report.
inline constexpr double late_loader_percent = 10;

class record {
 public:
  using entry = std::pair<std::string, double>;

  record() = default;
  record(std::initializer_list<entry> entries) : entries_(entries) {}

  /// Adds a value, or replaces the one of this name.
  void set(std::string_view name, double value);
  [[nodiscard]] std::optional<double> find(std::string_view name) const;
  /// Throws usage_error, listing the names, if there is none of this name.
  [[nodiscard]] double at(std::string_view name) const;
  /// "eval_loss, eval_accuracy, epoch"; "nothing" if empty.
  [[nodiscard]] std::string names() const;
  [[nodiscard]] const std::vector<entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  friend bool operator==(const record&, const record&) = default;

 private:
  std::vector<entry> entries_;
};

/// A number for JSON, without a fraction if it is whole: "step": 10, not 10.0.
[[nodiscard]] json::value json_number(double value);

/// As Python prints a dict; values to five significant digits.
[[nodiscard]] std::string dict_text(const record& line);

/// A JSON object; Inf and NaN become null.
[[nodiscard]] json::value to_json(const record& line);

/// The inverse; null becomes NaN. Throws json::error for anything but an object of numbers.
[[nodiscard]] record record_from(const json::value& object);

}  // namespace parx::train

template <>
struct fmt::formatter<parx::train::record> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(const parx::train::record& line, Context& context) const {
    return fmt::formatter<std::string_view>::format(parx::train::dict_text(line), context);
  }
};

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/record_impl.hpp>
#endif
