// file_layout: what the columns of a text file are for, known from its first line and the options.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/find_float.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/without_blanks.hpp>
#include <parx/data/formats/lines.hpp>
#include <parx/trees/read.hpp>

namespace parx::inline PARX_ABI::trees::detail {

using parx::detail::find_float;
using parx::detail::without_blanks;

/// Cuts a line into fields, without the blanks around them. A field in quotes may hold delimiters,
/// and quotes that are doubled.
class field_splitter {
 public:
  explicit field_splitter(char delimiter) : delimiter_(delimiter) {}

  /// The fields refer to `line` and to this object, until the next call. False where a quote is not
  /// closed, or text follows it.
  [[nodiscard]] bool split(std::string_view line, std::vector<std::string_view>& fields) {
    fields.clear();
    unquoted_.clear();
    unquoted_.reserve(line.size());  // so that views of it stay
    for (;;) {
      const std::size_t first =
          delimiter_ == '\t' ? line.find_first_not_of(' ') : line.find_first_not_of(" \t");
      if (first != line.npos && line[first] == '"') {
        line.remove_prefix(first + 1);
        if (!take_quoted(line, fields)) return false;
      } else {
        const std::size_t end = line.find(delimiter_);
        fields.push_back(without_blanks(line.substr(0, end)));
        line.remove_prefix(std::min(end, line.size()));
      }
      if (line.empty()) return true;
      line.remove_prefix(1);
    }
  }

 private:
  [[nodiscard]] bool take_quoted(std::string_view& line, std::vector<std::string_view>& fields) {
    const std::size_t begin = unquoted_.size();
    for (;;) {
      const std::size_t quote = line.find('"');
      if (quote == line.npos) return false;
      unquoted_.append(line.substr(0, quote));
      line.remove_prefix(quote + 1);
      if (!line.starts_with('"')) break;
      unquoted_ += '"';
      line.remove_prefix(1);
    }
    fields.push_back(std::string_view(unquoted_).substr(begin));
    const std::size_t end = std::min(line.find(delimiter_), line.size());
    if (!without_blanks(line.substr(0, end)).empty()) return false;
    line.remove_prefix(end);
    return true;
  }

  char delimiter_;
  std::string unquoted_;
};

struct file_layout {
  bool is_libsvm = false;
  bool has_header = false;
  bool has_query = false;  ///< a column, or the qid of LibSVM
  char delimiter = ',';
  std::size_t fields = 0;  ///< of a line
  std::optional<std::size_t> label, weight, query;
  std::vector<std::size_t> features;  ///< the fields that are the table's columns
  std::vector<std::string> names;     ///< of the fields; empty: no header
  std::vector<column_kind> kinds;     ///< of the features

  /// "column 3 (age)", for messages: counted from 1, as an editor does.
  [[nodiscard]] std::string name_of(std::size_t field) const {
    return field < names.size() ? formatted("column {} ({})", field + 1, printable(names[field]))
                                : formatted("column {}", field + 1);
  }
};

[[nodiscard]] inline bool looks_like_libsvm(std::string_view line) {
  line = without_blanks(line.substr(0, line.find('#')));
  const std::size_t space = line.find_first_of(" \t");
  if (!find_float(line.substr(0, std::min(line.find(':'), space)))) return false;
  if (space == line.npos) return false;
  const std::string_view entry = without_blanks(line.substr(space));
  const std::size_t colon = entry.find(':');
  return colon != entry.npos && colon > 0 && colon < entry.find_first_of(" \t,");
}

/// The field that `given` names. Throws usage_error where the file has none, or two, of that name.
[[nodiscard]] inline std::size_t field_of(const file_layout& layout, const file_column& given,
                                          const std::string& path) {
  if (given.number >= 0 && given.name.empty()) {
    require(static_cast<std::size_t>(given.number) < layout.fields,
            "\"{}\" has {} columns, so there is no column {}, counted from 0", path, layout.fields,
            given.number);
    return static_cast<std::size_t>(given.number);
  }
  const auto found = std::find(layout.names.begin(), layout.names.end(), given.name);
  require(found != layout.names.end(), "\"{}\" has no column \"{}\"{}", path, printable(given.name),
          layout.names.empty() ? "; it has no header line, so name columns by their numbers from 0"
                               : "");
  require(std::find(found + 1, layout.names.end(), given.name) == layout.names.end(),
          "\"{}\" has two columns \"{}\"", path, printable(given.name));
  return static_cast<std::size_t>(found - layout.names.begin());
}

/// Reads the first line of `path` that is not empty. Throws errc::bad_data where there is none.
[[nodiscard]] inline file_layout layout_of(const std::string& path, const read_options& options) {
  data::line_reader lines(path);
  std::string first;
  while (without_blanks(first).empty()) {
    if (!lines.next(first)) throw_error(errc::bad_data, "\"{}\" has no rows", path);
  }
  file_layout layout;
  layout.is_libsvm = options.format == file_format::libsvm ||
                     (options.format == file_format::automatic && looks_like_libsvm(first));
  layout.has_query =
      layout.is_libsvm ? first.find(" qid:") != first.npos : options.query.has_value();
  if (layout.is_libsvm) return layout;
  layout.delimiter = options.delimiter != '\0'               ? options.delimiter
                     : first.find('\t') != std::string::npos ? '\t'
                                                             : ',';
  field_splitter splitter(layout.delimiter);
  std::vector<std::string_view> fields;
  if (!splitter.split(first, fields)) {
    throw_error(errc::bad_data, "\"{}\", line {}: a quote is not closed on its line", path,
                lines.number());
  }
  layout.fields = fields.size();
  const auto is_number = [](std::string_view field) { return find_float(field).has_value(); };
  layout.has_header = options.header == header_line::present ||
                      (options.header == header_line::automatic &&
                       std::none_of(fields.begin(), fields.end(), is_number));
  if (layout.has_header) layout.names.assign(fields.begin(), fields.end());

  std::vector<column_kind> kind_of_field(layout.fields, column_kind::numeric);
  std::vector<bool> is_feature(layout.fields, true);
  const auto take = [&](const std::optional<file_column>& given) -> std::optional<std::size_t> {
    if (!given) return std::nullopt;
    const std::size_t field = field_of(layout, *given, path);
    is_feature[field] = false;
    return field;
  };
  layout.label = take(options.label);
  layout.weight = take(options.weight);
  layout.query = take(options.query);
  for (const file_column& each : options.ignore) (void)take(each);
  for (const file_column& each : options.categorical) {
    if (options.like != nullptr) break;  // which says so itself
    kind_of_field[field_of(layout, each, path)] = column_kind::categorical;
  }
  for (std::size_t field = 0; field < layout.fields; ++field) {
    if (!is_feature[field]) continue;
    layout.features.push_back(field);
    layout.kinds.push_back(kind_of_field[field]);
  }
  return layout;
}

}  // namespace parx::trees::detail
