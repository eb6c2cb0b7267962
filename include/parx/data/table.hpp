// read_table: a CSV or TSV file of numbers with a column of classes, as a data set in memory.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/data/dataset.hpp>
#include <parx/data/formats/csv.hpp>

namespace parx::data {

struct table_options {
  csv_options csv = {};
  std::string label = {};  ///< column of the class; required
  std::vector<std::string> features =
      {};  ///< columns of x, in this order; empty: all but the label
  std::vector<std::string> classes =
      {};  ///< the label's texts, class 0 first; empty: it holds 0, 1, 2, ...
};

namespace detail {

inline std::int64_t read_class(const csv_reader& file, const std::string& text, std::size_t column,
                               const std::vector<std::string>& classes) {
  if (!classes.empty()) {
    const auto found = std::find(classes.begin(), classes.end(), text);
    if (found != classes.end()) return found - classes.begin();
    throw_error(errc::bad_data, "\"{}\", line {}, {}: \"{}\" is none of the classes {}.",
                file.path(), file.line(), file.column_name(column), text, fmt::join(classes, ", "));
  }
  std::int64_t number = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc{} || end != text.data() + text.size() || number < 0) {
    throw_error(
        errc::bad_data,
        "\"{}\", line {}, {}: \"{}\" is not a class number 0, 1, 2, .... Name the texts of the "
        "classes in table_options::classes.",
        file.path(), file.line(), file.column_name(column), text);
  }
  return number;
}

}  // namespace detail

/// Reads `path`: x is [rows, features], y the classes. Throws errc::io or errc::bad_data, with line
/// and column; usage_error when a column does not exist.
[[nodiscard]] inline tensor_dataset read_table(const std::string& path,
                                               const table_options& options) {
  csv_reader file(path, options.csv);
  const std::size_t label = file.column(options.label);
  std::vector<std::size_t> features;
  for (const std::string& name : options.features) features.push_back(file.column(name));

  std::vector<float> values;
  std::vector<std::int64_t> classes;
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
    classes.push_back(detail::read_class(file, fields[label], label, options.classes));
  }
  if (classes.empty()) throw_error(errc::bad_data, "\"{}\" has no records.", path);
  return {tensor<float>::from(values, {classes.size(), features.size()}),
          tensor<std::int64_t>::from(classes, {classes.size()})};
}

}  // namespace parx::data
