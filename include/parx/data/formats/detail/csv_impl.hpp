// Definitions of csv.hpp.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/find_float.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>
#include <parx/data/formats/csv.hpp>
#include <parx/data/formats/detail/text_bytes.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE csv_reader::csv_reader(const std::string& path, csv_options options)
    : file_(path), options_(options) {
  require(options.delimiter != '"' && options.delimiter != '\n' && options.delimiter != '\r',
          "csv_reader: a quote or a line break cannot be the delimiter");
  if (options.header == csv_header::present) {
    std::vector<std::string> names;
    if (!next(names)) throw_error(errc::bad_data, "\"{}\" is empty; expected a header line.", path);
    header_ = std::move(names);
  }
}

PARX_INLINE bool csv_reader::next(std::vector<std::string>& fields) {
  while (peek() != end_of_file) {
    record_line_ = line_;
    if (skip_empty_line()) continue;
    read_record(fields);
    if (width_ == 0) width_ = fields.size();
    if (fields.size() != width_) {
      throw_error(errc::bad_data,
                  "\"{}\", line {}: the record has {} fields, but the first record has {}. Check "
                  "the delimiter '{}' and the quotes of this line.",
                  path(), record_line_, fields.size(), width_, shown(options_.delimiter));
    }
    return true;
  }
  return false;
}

PARX_INLINE std::size_t csv_reader::column(std::string_view name) const {
  const auto found = std::find(header_.begin(), header_.end(), name);
  if (found != header_.end()) {
    const auto other = std::find(found + 1, header_.end(), name);
    require(other == header_.end(),
            "\"{}\" has two columns \"{}\", number {} and number {}; give one another name", path(),
            printable(name), found - header_.begin() + 1, other - header_.begin() + 1);
    return static_cast<std::size_t>(found - header_.begin());
  }
  if (header_.empty()) {
    if (const auto number = parx::detail::parse_number<std::size_t>(name)) return *number;
    throw_usage("\"{}\" has no header, so its columns are \"0\", \"1\", ...; \"{}\" is not one",
                path(), printable(name));
  }
  const bool perhaps_record =
      parx::detail::find_float(name) ||
      std::any_of(header_.begin(), header_.end(), &parx::detail::find_float);
  throw_usage("\"{}\" has no column \"{}\"; its first line names {}{}", path(), printable(name),
              printable(joined_text(header_).substr(0, 200)),
              perhaps_record ? ". If that line is a record, say so, {.header = csv_header::absent} "
                               "in csv_options; the columns are then \"0\", \"1\", ..."
                             : "");
}

PARX_INLINE float csv_reader::number(std::string_view text, std::size_t column) const {
  if (const auto value = parx::detail::find_float(text)) return *value;
  throw_error(errc::bad_data, "\"{}\", line {}, {}: \"{}\" is not a finite number.", path(),
              record_line_, column_name(column), printable(text));
}

PARX_INLINE std::string csv_reader::column_name(std::size_t column) const {
  if (column < header_.size())
    return formatted("column {} ({})", column + 1, printable(header_[column]));
  return formatted("column {}", column + 1);
}

PARX_INLINE int csv_reader::peek() {
  if (position_ == filled_) {
    const bool is_start = file_.offset() == 0;
    filled_ = file_.read(std::as_writable_bytes(std::span(buffer_)));
    const std::string_view bytes(buffer_.data(), filled_);
    position_ = is_start ? detail::size_of_mark(bytes, path()) : 0;
    detail::require_no_nul(bytes, line_, path());
    if (filled_ == 0) return end_of_file;
    if (position_ == filled_) return peek();  // the mark alone
  }
  return static_cast<unsigned char>(buffer_[position_]);
}

PARX_INLINE int csv_reader::take() {
  const int character = peek();
  if (character != end_of_file) {
    ++position_;
    if (character == '\n') ++line_;
  }
  return character;
}

PARX_INLINE bool csv_reader::take_line_end() {
  if (peek() == '\r') {
    take();
    if (peek() == '\n') take();
    return true;
  }
  if (peek() != '\n') return false;
  take();
  return true;
}

PARX_INLINE void csv_reader::read_record(std::vector<std::string>& fields) {
  std::size_t count = 0;
  for (bool more = true; more;) {
    if (count == fields.size()) fields.emplace_back();
    std::string& field = fields[count++];
    field.clear();
    if (options_.quotes == csv_quotes::rfc4180 && begins_quoted()) {
      read_quoted(field, count);
    } else {
      read_plain(field);
    }
    more = false;
    if (peek() == static_cast<unsigned char>(options_.delimiter)) {
      take();
      more = true;
    } else {
      take_line_end();
    }
  }
  fields.resize(count);
}

PARX_INLINE bool csv_reader::begins_quoted() {
  if (options_.spaces == csv_spaces::strip) {
    while (peek() == ' ') take();
  }
  return peek() == '"';
}

PARX_INLINE void csv_reader::read_plain(std::string& field) {
  for (int c = peek(); c != end_of_file && c != static_cast<unsigned char>(options_.delimiter) &&
                       c != '\n' && c != '\r';
       c = peek()) {
    field.push_back(static_cast<char>(take()));
  }
  if (options_.spaces == csv_spaces::strip) {
    field.erase(field.find_last_not_of(' ') + 1);
    field.erase(0, field.find_first_not_of(' '));
  }
}

PARX_INLINE void csv_reader::read_quoted(std::string& field, std::size_t number) {
  const std::uint64_t opened = line_;
  take();
  for (;;) {
    const int c = take();
    if (c == end_of_file) {
      throw_error(errc::bad_data,
                  "\"{}\", line {}, {}: the quote opened here is never closed. Close it, or read "
                  "the file with csv_quotes::none.",
                  path(), opened, column_name(number - 1));
    }
    if (c != '"') {
      field.push_back(static_cast<char>(c));
    } else if (peek() == '"') {
      field.push_back(static_cast<char>(take()));
    } else {
      break;
    }
  }
  if (options_.spaces == csv_spaces::strip) {
    while (peek() == ' ') take();
  }
  const int after = peek();
  if (after != end_of_file && after != static_cast<unsigned char>(options_.delimiter) &&
      after != '\n' && after != '\r') {
    throw_error(
        errc::bad_data,
        "\"{}\", line {}, {}: '{}' follows a closing quote, expected '{}' or the end of the "
        "line. Write a quote inside a quoted field twice.",
        path(), line_, column_name(number - 1), shown(static_cast<char>(after)),
        shown(options_.delimiter));
  }
}

PARX_INLINE std::string csv_reader::shown(char character) {
  return character == '\t' ? "\\t" : parx::printable({&character, 1});
}

}  // namespace parx::data
