// read_table: a CSV or TSV file of numbers as a data set in memory, with a column of classes or of
// numbers to predict.
//
//   const auto irises = read_table("iris.csv", {.label = "species", .classes = {"setosa", ...}});
//   const auto houses = read_table<float>("houses.csv", {.label = "price"});   // for mse_loss
//   const auto plain = read_table("a.csv", {.csv = {.header = csv_header::absent}, .label = "4"});
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/data/dataset.hpp>
#include <parx/data/formats/csv.hpp>

namespace parx::inline PARX_ABI::data {

struct table_options {
  csv_options csv = {};
  std::string label = {};  ///< column of the class, or of the number to predict; required
  /// Columns of x, in this order; empty: all but the label.
  std::vector<std::string> features = {};
  /// The label's texts, class 0 first; empty: the labels are 0, 1, 2, ...
  std::vector<std::string> classes = {};
};

namespace detail {

inline std::int64_t read_class(const csv_reader& file, const std::string& text, std::size_t column,
                               const std::vector<std::string>& classes) {
  if (!classes.empty()) {
    const auto found = std::find(classes.begin(), classes.end(), text);
    if (found != classes.end()) return found - classes.begin();
    throw_error(errc::bad_data, "\"{}\", line {}, {}: \"{}\" is none of the classes {}.",
                file.path(), file.line(), file.column_name(column), text, joined_text(classes));
  }
  const auto number = parx::detail::parse_number<std::int64_t>(text);
  if (number && *number >= 0) return *number;
  throw_error(
      errc::bad_data,
      "\"{}\", line {}, {}: \"{}\" is not a class number 0, 1, 2, .... Name the texts of the "
      "classes in table_options::classes, or read numbers to predict: read_table<float>.",
      file.path(), file.line(), file.column_name(column), text);
}

}  // namespace detail

/// Reads `path`: x is [rows, features], y the classes, [rows], or, with Target float, the numbers
/// of the label's column, [rows, 1] as a linear layer with one output gives. Throws errc::io or
/// errc::bad_data, with line and column; usage_error when a column does not exist.
template <typename Target = std::int64_t>
  requires std::same_as<Target, std::int64_t> || std::same_as<Target, float>
[[nodiscard]] tensor_dataset<Target> read_table(const std::string& path,
                                                const table_options& options) {
  constexpr bool has_classes = std::same_as<Target, std::int64_t>;
  require(!options.label.empty(),
          "read_table: say which column of \"{}\" is to be learned: {{.label = \"...\"}}", path);
  require(has_classes || options.classes.empty(),
          "read_table: \"{}\" is read for numbers to predict, which have no classes", path);
  csv_reader file(path, options.csv);
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
    for (const std::size_t column : features) values.push_back(file.number(fields[column], column));
    if constexpr (has_classes) {
      labels.push_back(detail::read_class(file, fields[label], label, options.classes));
    } else {
      labels.push_back(file.number(fields[label], label));
    }
  }
  const std::size_t rows = labels.size();
  if (rows == 0) throw_error(errc::bad_data, "\"{}\" has no records.", path);
  return {tensor<float>::from(values, {rows, features.size()}),
          tensor<Target>::from(labels, has_classes ? shape{rows} : shape{rows, 1})};
}

}  // namespace parx::data
