// Definitions of records.hpp.
#pragma once

#include <algorithm>
#include <utility>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/printable.hpp>
#include <parx/data/text/records.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE text_format text_format_of(std::string_view path, text_format given) {
  if (given != text_format::by_name) return given;
  if (path.ends_with(".gz")) path.remove_suffix(3);
  if (path.ends_with(".jsonl") || path.ends_with(".json")) return text_format::jsonl;
  return path.ends_with(".tsv") ? text_format::tsv : text_format::csv;
}

PARX_INLINE text_records::text_records(const std::string& path, std::vector<std::string> columns,
                                       text_format format, csv_header header)
    : path_(path), columns_(std::move(columns)) {
  format = text_format_of(path, format);
  if (format == text_format::jsonl) {
    jsonl_.emplace(path);
    return;
  }
  csv_.emplace(path, format == text_format::tsv ? tsv(header) : csv_options{.header = header});
  for (const std::string& column : columns_) numbers_.push_back(csv_->column(column));
}

PARX_INLINE bool text_records::next(std::vector<std::string>& fields) {
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

PARX_INLINE std::uint64_t text_records::line() const noexcept {
  return jsonl_ ? jsonl_->line() : csv_->line();
}

PARX_INLINE std::string text_records::place() const {
  return formatted("\"{}\", line {}", path_, line());
}

PARX_INLINE std::string text_records::json_text(const std::string& column) const {
  const json::value* found = row_.find(column);
  if (found == nullptr && column.ends_with("[0]")) {
    found = row_.find(std::string_view(column).substr(0, column.size() - 3));
    if (found != nullptr && found->is_array())
      found = found->elements().empty() ? nullptr : found->elements().data();
  }
  if (found == nullptr) {
    std::string fields;
    for (const auto& [name, value] : row_.members())
      fields += formatted("{}\"{}\"", fields.empty() ? "" : ", ", name);
    throw_error(errc::bad_data, "{}: there is no \"{}\"; there is {}.", place(), column,
                fields.empty() ? "nothing" : printable(fields));
  }
  if (found->is_string()) return found->text();
  if (found->is_number()) return json::dump(*found);
  if (found->is_array() && std::all_of(found->elements().begin(), found->elements().end(),
                                       [](const json::value& each) { return each.is_string(); })) {
    std::string joined;
    for (const json::value& each : found->elements()) {
      if (!joined.empty()) joined += ' ';
      joined += each.text();
    }
    return joined;
  }
  throw_error(errc::bad_data, "{}: \"{}\" is neither a string nor a number nor a list of strings.",
              place(), column);
}

}  // namespace parx::data
