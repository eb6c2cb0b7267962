// read_table: a CSV or TSV file of numbers as a data set in memory, with a column of classes or of
// numbers to predict.
//
//   const auto irises = read_table("iris.csv", {.label = "species", .classes = {"setosa", ...}});
//   const auto houses = read_table<float>("houses.csv", {.label = "price"});   // for mse_loss
//   const auto plain = read_table("a.csv", {.csv = {.header = csv_header::absent}, .label = "4"});
//   const auto gaps = read_table("b.csv", {.label = "y", .missing = missing_values::column_mean});
//
// For columns of like size see standardizer.hpp.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/find_float.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/source.hpp>
#include <parx/core/without_blanks.hpp>
#include <parx/data/dataset.hpp>
#include <parx/data/formats/csv.hpp>

namespace parx::inline PARX_ABI::data {

/// What is read in the place of a missing value of x.
enum class missing_values {
  refuse,       ///< an error that names line and column
  nan,          ///< NaN, for a standardizer or code of yours
  fill,         ///< table_options::fill
  column_mean,  ///< the mean of the column's other values in this file
};

struct table_options {
  csv_options csv = {};
  std::string label = {};  ///< column of the class, or of the number to predict; required
  /// Columns of x, in this order; empty: all but the label.
  std::vector<std::string> features = {};
  /// The label's texts, class 0 first; empty: the labels are 0, 1, 2, ...
  std::vector<std::string> classes = {};
  missing_values missing = missing_values::refuse;
  float fill = 0;
  /// The texts of a missing value, blanks around them aside.
  std::vector<std::string> missing_texts = {"",    "NA",   "N/A",  "n/a",  "NaN",
                                            "nan", "NULL", "null", "None", "?"};
};

namespace detail {

[[nodiscard]] inline bool is_missing(std::string_view text, const table_options& options) {
  const auto& all = options.missing_texts;
  return std::find(all.begin(), all.end(), parx::detail::without_blanks(text)) != all.end();
}

/// A value of x; NaN for a missing one that a column's mean will replace.
inline float read_value(const csv_reader& file, const std::string& text, std::size_t column,
                        const table_options& options) {
  if (const auto number = parx::detail::find_float(text)) return *number;
  const bool missing = is_missing(text, options);
  if (missing && options.missing == missing_values::fill) return options.fill;
  if (missing && options.missing != missing_values::refuse)
    return std::numeric_limits<float>::quiet_NaN();
  throw_error(errc::bad_data, "\"{}\", line {}, {}: \"{}\" is {}", file.path(), file.line(),
              file.column_name(column), printable(text),
              missing ? "a missing value. Say what to read in its place: {.missing = "
                        "missing_values::column_mean}, fill or nan."
                      : "not a finite number. Leave such a column out by naming the others in "
                        "table_options::features.");
}

/// Replaces the NaN of each column of `values`, rows of `columns`, by the mean of its numbers.
inline void fill_with_means(const csv_reader& file, std::vector<float>& values,
                            const std::vector<std::size_t>& columns) {
  const std::size_t width = columns.size();
  for (std::size_t c = 0; c < width; ++c) {
    double sum = 0;
    std::size_t count = 0;
    for (std::size_t at = c; at < values.size(); at += width) {
      if (std::isnan(values[at])) continue;
      sum += static_cast<double>(values[at]);
      ++count;
    }
    if (count == 0)
      throw_error(errc::bad_data,
                  "\"{}\", {}: no line has a value, so there is no mean. Leave the column out by "
                  "naming the others in table_options::features.",
                  file.path(), file.column_name(columns[c]));
    const auto mean = static_cast<float>(sum / static_cast<double>(count));
    for (std::size_t at = c; at < values.size(); at += width)
      if (std::isnan(values[at])) values[at] = mean;
  }
}

/// Warns where the first line, read as names, has numbers alone: a record would be lost. Names "0",
/// "1", ... are those of pandas for columns without names.
inline void warn_of_numbers_as_names(const csv_reader& file) {
  const auto& names = file.header();
  bool counted = true, numbers = !names.empty();
  for (std::size_t i = 0; i < names.size(); ++i) {
    counted = counted && names[i] == std::to_string(i);
    numbers = numbers && parx::detail::find_float(names[i]).has_value();
  }
  if (numbers && !counted)
    log0(log_level::warn,
         "\"{}\": the first line, {:.100}, is taken for the names of the columns. If it is a "
         "record, say so: {{.csv = {{.header = csv_header::absent}}}}",
         file.path(), joined_text(names));
}

inline std::int64_t read_class(const csv_reader& file, const std::string& text, std::size_t column,
                               const std::vector<std::string>& classes) {
  if (!classes.empty()) {
    const auto found = std::find(classes.begin(), classes.end(), text);
    if (found != classes.end()) return found - classes.begin();
    throw_error(errc::bad_data, "\"{}\", line {}, {}: \"{}\" is none of the classes {}.",
                file.path(), file.line(), file.column_name(column), printable(text),
                joined_text(classes));
  }
  const auto number = parx::detail::parse_number<std::int64_t>(text);
  if (number && *number >= 0) return *number;
  throw_error(
      errc::bad_data,
      "\"{}\", line {}, {}: \"{}\" is not a class number 0, 1, 2, .... Name the texts of the "
      "classes in table_options::classes, or read numbers to predict: read_table<float>.",
      file.path(), file.line(), file.column_name(column), printable(text));
}

}  // namespace detail

/// Reads `path`: x is [rows, features], y the classes, [rows], or, with Target float, the numbers
/// of the label's column, [rows, 1] as a linear layer with one output gives. A missing label is an
/// error always. Throws errc::io or errc::bad_data, with line and column; usage_error when a column
/// does not exist.
template <typename Target = std::int64_t>
requires std::same_as<Target, std::int64_t> || std::same_as<Target, float>
[[nodiscard]] tensor_dataset<Target> read_table(const std::string& path,
                                                const table_options& options,
                                                call_site = call_site::current()) {
  constexpr bool has_classes = std::same_as<Target, std::int64_t>;
  require(!options.label.empty(),
          "read_table: say which column of \"{}\" is to be learned: {{.label = \"...\"}}", path);
  require(has_classes || options.classes.empty(),
          "read_table: \"{}\" is read for numbers to predict, which have no classes", path);
  csv_reader file(path, options.csv);
  detail::warn_of_numbers_as_names(file);
  const std::size_t label = file.column(options.label);
  std::vector<std::size_t> features;
  for (const std::string& name : options.features) features.push_back(file.column(name));

  std::vector<float> values;
  std::vector<Target> labels;
  std::vector<std::string> fields;
  while (file.next(fields)) {
    if (features.empty()) {
      for (std::size_t i = 0; i < fields.size(); ++i) {
        if (i != label) features.push_back(i);
      }
    }
    const std::size_t last =
        features.empty() ? label
                         : std::max(label, *std::max_element(features.begin(), features.end()));
    require(last < fields.size(), "\"{}\" has {} columns; column \"{}\" does not exist", path,
            fields.size(), last);
    for (const std::size_t column : features)
      values.push_back(detail::read_value(file, fields[column], column, options));
    const bool names_classes = !options.classes.empty();
    if (!names_classes && detail::is_missing(fields[label], options))
      throw_error(errc::bad_data,
                  "\"{}\", line {}, {}: the label is missing (\"{}\"). Remove the line: it teaches "
                  "nothing.",
                  path, file.line(), file.column_name(label), printable(fields[label]));
    if constexpr (has_classes) {
      labels.push_back(detail::read_class(file, fields[label], label, options.classes));
    } else {
      labels.push_back(file.number(fields[label], label));
    }
  }
  const std::size_t rows = labels.size();
  if (rows == 0) throw_error(errc::bad_data, "\"{}\" has no records.", path);
  if (options.missing == missing_values::column_mean)
    detail::fill_with_means(file, values, features);
  return {tensor<float>::from(values, {rows, features.size()}),
          tensor<Target>::from(labels, has_classes ? shape{rows} : shape{rows, 1})};
}

}  // namespace parx::data
