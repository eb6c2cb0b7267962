// text_records: reads chosen columns of a file of texts in CSV, TSV or JSON lines.
//
// The file's name tells the format: .jsonl and .json are JSON lines, .tsv is TSV, all others CSV;
// each may be gzip (.gz after it). Columns have the names in the file; in a CSV or TSV file without
// a header, numbers from "0" on. In JSON a column is a string, a number, or a list of strings,
// which are joined by spaces; "target[0]" is the first of a list. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/data/formats/csv.hpp>
#include <parx/data/formats/jsonl.hpp>

namespace parx::inline PARX_ABI::data {

/// How a file holds its records.
enum class text_format { by_name, csv, tsv, jsonl };

/// The format of a file: `given`, or for by_name the one that its name tells.
[[nodiscard]] text_format text_format_of(std::string_view path,
                                         text_format given = text_format::by_name);

class text_records {
 public:
  /// Opens `path`; next() gives the columns in this order. Throws errc::io, and usage_error when a
  /// column is not in the file.
  text_records(const std::string& path, std::vector<std::string> columns,
               text_format format = text_format::by_name, csv_header header = csv_header::absent);

  /// Reads the next record's columns; false after the last. Throws errc::bad_data with the line.
  bool next(std::vector<std::string>& fields);

  /// The line on which the last record began.
  [[nodiscard]] std::uint64_t line() const noexcept;
  /// `"file", line 3`, for messages.
  [[nodiscard]] std::string place() const;

 private:
  [[nodiscard]] std::string json_text(const std::string& column) const;

  std::string path_;
  std::vector<std::string> columns_;
  std::vector<std::size_t> numbers_;
  std::optional<csv_reader> csv_;
  std::optional<jsonl_reader> jsonl_;
  std::vector<std::string> record_;
  json::value row_;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/records_impl.hpp>
#endif
