// record: one line of the log: names and values in the order in which they were added.
//
//   {'loss': 1.2164, 'grad_norm': 2.4071, 'learning_rate': 4.5e-05, 'epoch': 0.21}
//
// The same record goes to the console in that form, to files as JSON and CSV, to event files as
// scalars. Names are those of Hugging Face's Trainer. A value.
#pragma once

#include <cstdint>
#include <initializer_list>
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
[[nodiscard]] double rounded(double value, int digits);

/// 1234567 as "1,234,567", whatever the locale.
[[nodiscard]] std::string with_commas(std::uint64_t number);

/// A data_wait_percent above it is told, in the console's lines and by the report.
inline constexpr double late_loader_percent = 10;

class record {
 public:
  using entry = std::pair<std::string, double>;

  record() = default;
  record(std::initializer_list<entry> entries) : entries_(entries) {}

  /// Replaces the value of a name that is there.
  void set(std::string_view name, double value);
  [[nodiscard]] std::optional<double> find(std::string_view name) const;
  /// Throws usage_error, with the names that there are, for another.
  [[nodiscard]] double at(std::string_view name) const;
  /// "eval_loss, eval_accuracy, epoch"; "nothing" where it is empty.
  [[nodiscard]] std::string names() const;
  [[nodiscard]] const std::vector<entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  friend bool operator==(const record&, const record&) = default;

 private:
  std::vector<entry> entries_;
};

/// A number for JSON, whole where it is: "step": 10, not 10.0.
[[nodiscard]] json::value json_number(double value);

/// Python's way, which the labs' users know; figures to five significant digits.
[[nodiscard]] std::string dict_text(const record& line);

/// A JSON object in one line; what is not a finite number becomes null.
[[nodiscard]] json::value to_json(const record& line);

/// The inverse. Throws json::error for anything but an object of numbers; null is not a number.
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
