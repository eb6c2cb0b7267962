// text_records: chosen columns of a file of texts, whatever its format: CSV, TSV or JSON lines.
//
// The name tells the format: .jsonl and .json are JSON lines, .tsv is TSV, all else CSV; each may
// be gzip (.gz behind it). A column is named as the file names it; where a CSV or TSV file has no
// header, by its number from "0" on. In JSON a column is a string, a number, or a list of strings,
// which are joined by spaces; "target[0]" is the first of a list. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/data/formats/csv.hpp>
#include <parx/data/formats/jsonl.hpp>

namespace parx::inline PARX_ABI::data {

enum class text_format { by_name, csv, tsv, jsonl };

/// The format of a file: the one that was `said`, or by_name what its name says.
[[nodiscard]] inline text_format text_format_of(std::string_view path,
                                                text_format said = text_format::by_name) {
  if (said != text_format::by_name) return said;
  if (path.ends_with(".gz")) path.remove_suffix(3);
  if (path.ends_with(".jsonl") || path.ends_with(".json")) return text_format::jsonl;
  return path.ends_with(".tsv") ? text_format::tsv : text_format::csv;
}

class text_records {
 public:
  /// Opens `path`; next() gives the columns in this order. Throws errc::io, and usage_error when a
  /// column is not in the file.
  text_records(const std::string& path, std::vector<std::string> columns,
               text_format format = text_format::by_name, csv_header header = csv_header::absent)
      : path_(path), columns_(std::move(columns)) {
    format = text_format_of(path, format);
    if (format == text_format::jsonl) {
      jsonl_.emplace(path);
      return;
    }
    csv_.emplace(path, format == text_format::tsv ? tsv(header) : csv_options{.header = header});
    for (const std::string& column : columns_) numbers_.push_back(csv_->column(column));
  }

  /// Reads the next record's columns; false after the last. Throws errc::bad_data with the line.
  bool next(std::vector<std::string>& fields) {
    fields.resize(columns_.size());
    if (jsonl_) {
      if (!jsonl_->next(row_)) return false;
      if (!row_.is_object())
        throw_error(errc::bad_data, "{}: expected an object like {{\"{}\": ...}}.", place(),
                    columns_.empty() ? "text" : columns_.front());
      for (std::size_t i = 0; i < columns_.size(); ++i) fields[i] = json_text(columns_[i]);
      return true;
    }
    if (!csv_->next(record_)) return false;
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      if (numbers_[i] >= record_.size())
        throw_error(errc::bad_data, "{}: there are {} columns, so none is number {}.", place(),
                    record_.size(), numbers_[i]);
      fields[i] = record_[numbers_[i]];
    }
    return true;
  }

  /// The line on which the last record began.
  [[nodiscard]] std::uint64_t line() const noexcept {
    return jsonl_ ? jsonl_->line() : csv_->line();
  }
  /// `"file", line 3`, for messages.
  [[nodiscard]] std::string place() const { return fmt::format("\"{}\", line {}", path_, line()); }

 private:
  [[nodiscard]] std::string json_text(const std::string& column) const {
    const json::value* found = row_.find(column);
    if (found == nullptr && column.ends_with("[0]")) {
      found = row_.find(std::string_view(column).substr(0, column.size() - 3));
      if (found != nullptr && found->is_array())
        found = found->elements().empty() ? nullptr : found->elements().data();
    }
    if (found == nullptr) {
      std::string fields;
      for (const auto& [name, value] : row_.members())
        fields += fmt::format("{}\"{}\"", fields.empty() ? "" : ", ", name);
      throw_error(errc::bad_data, "{}: there is no \"{}\"; there is {}.", place(), column,
                  fields.empty() ? "nothing" : fields);
    }
    if (found->is_string()) return found->text();
    if (found->is_number()) return json::dump(*found);
    if (found->is_array() &&
        std::all_of(found->elements().begin(), found->elements().end(),
                    [](const json::value& each) { return each.is_string(); })) {
      std::string joined;
      for (const json::value& each : found->elements()) {
        if (!joined.empty()) joined += ' ';
        joined += each.text();
      }
      return joined;
    }
    throw_error(errc::bad_data,
                "{}: \"{}\" is neither a string nor a number nor a list of strings.", place(),
                column);
  }

  std::string path_;
  std::vector<std::string> columns_;
  std::vector<std::size_t> numbers_;
  std::optional<csv_reader> csv_;
  std::optional<jsonl_reader> jsonl_;
  std::vector<std::string> record_;
  json::value row_;
};

}  // namespace parx::data
